//! Profiles sent to a collector, which is made of gRPC's and OpenTelemetry's own packages (`collector.py`).

#![cfg(feature = "push")]

use crate::otlp::{list, read_file, sums};
use crate::support::{by_function, done, inlined, number, report, threads};
use dioptra_testprograms::{self as programs, Recorded, Skip, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The packages of the collector, and those that they depend on.
const PACKAGES: [&str; 6] = [
    "grpcio==1.85.3",
    "grpcio-status==1.85.3",
    "googleapis-common-protos==1.76.0",
    "opentelemetry-proto==1.45.2",
    "protobuf==7.36.2",
    "typing_extensions==4.16.0",
];

/// A running collector, and the folder of what it took.
struct Collector {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Collector {
    fn start(protocol: &str, behaviours: &[&str]) -> Result<Collector, Skip> {
        Collector::with(protocol, behaviours, &[])
    }

    fn with(
        protocol: &str,
        behaviours: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Collector, Skip> {
        let mut python = programs::python_with(&PACKAGES)?;
        let folder = tempfile::tempdir().expect("a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/collector.py");
        let mut child = python
            .arg(script)
            .arg(protocol)
            .arg(folder.path())
            .args(behaviours)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("the port");
        Ok(Collector {
            child,
            port: line.trim().parse().expect("a port"),
            folder,
        })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests that it got, in their order.
    fn requests(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("requests.jsonl"));
        let log = log.unwrap_or_default();
        let lines = log.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// The profiles that it took. Those with the same id are one.
    fn taken(&self) -> Result<Vec<Value>, Skip> {
        let mut ids = BTreeSet::new();
        let mut profiles = Vec::new();
        for number in 0.. {
            let file = self.folder.path().join(format!("{number}.pb"));
            if !file.exists() {
                break;
            }
            for profile in list(&read_file(&file)?["profiles"]) {
                if ids.insert(profile["id"].as_str().expect("an id").to_owned()) {
                    profiles.push(profile.clone());
                }
            }
        }
        Ok(profiles)
    }

    /// The sums of the taken profiles of a kind, by innermost function.
    fn sums(&self, kind: &str) -> Result<BTreeMap<String, u64>, Skip> {
        let mut all = BTreeMap::new();
        for profile in self.taken()? {
            if profile["type"][0] == kind {
                for (name, sum) in sums(&profile).0 {
                    *all.entry(name).or_default() += sum;
                }
            }
        }
        Ok(all)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // The collector ends when its standard input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn push(folder: &Path, url: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["export", "--to", "otlp", "--push", url])
        .args(more)
        .current_dir(folder)
        .env_remove("OTEL_EXPORTER_OTLP_HEADERS")
        .output()
        .expect("dioptra runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Pushes, and checks that the collector has the report's numbers.
fn arrives(recorded: &Recorded, collector: &Collector, more: &[&str]) -> Result<String, Skip> {
    let folder = recorded.folder.path();
    let output = push(folder, &collector.url(), more);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("sent "), "{said}");
    for event in ["cpu-clock", "page-faults"] {
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(collector.sums(event)?, by_function(&rows, "weight"));
        let samples = collector.sums(&format!("samples:{event}"))?;
        assert_eq!(samples, by_function(&rows, "samples"), "{event}");
    }
    assert!(!folder.join("profile.otlp.pb").exists(), "no file");
    Ok(said)
}

#[test]
fn refused_requests_are_sent_again_when_the_collector_says() {
    let recorded = or_skip!(inlined());
    let behaviours = [
        "fail:UNAVAILABLE",
        "fail:UNAVAILABLE:0.7",
        "fail:RESOURCE_EXHAUSTED:0.2",
        "fail:ABORTED",
    ];
    let collector = or_skip!(Collector::start("grpc", &behaviours));
    let said = or_skip!(arrives(&recorded, &collector, &[]));
    // The text has characters that gRPC encodes, and one that would end the line.
    let text = "UNAVAILABLE: no room, 100 % full: naïve\\nline; trying again";
    assert!(said.contains(text), "{said}");
    let requests = collector.requests();
    assert_eq!(requests.len(), behaviours.len() + 1, "{requests:?}");
    let gap = |place: usize| {
        let time = |place: usize| requests[place]["time"].as_f64().expect("a time");
        time(place + 1) - time(place)
    };
    assert!(gap(1) >= 0.7, "{requests:?}");
    assert!(gap(2) >= 0.2, "{requests:?}");
    for request in &requests {
        let headers = &request["headers"];
        let agent = headers["user-agent"].as_str().expect("a name");
        assert!(agent.starts_with("dioptra/"), "{headers}");
        let left = headers["left"].as_f64().expect("a deadline");
        assert!(left > 0.0 && left <= 30.0, "{headers}");
    }
}

#[test]
fn a_large_profile_becomes_several_requests() {
    let recorded = or_skip!(inlined());
    let behaviours = [
        "ok",
        "fail:UNAVAILABLE",
        "slow:0.3",
        "ok",
        "fail:UNAVAILABLE",
    ];
    let collector = or_skip!(Collector::start("grpc", &behaviours));
    let said = or_skip!(arrives(&recorded, &collector, &["--push-size", "2K"]));
    let requests = collector.requests();
    assert!(requests.len() > behaviours.len(), "{requests:?}");
    for request in &requests {
        assert!(number(&request["size"]) <= 2 << 10, "{request}");
        assert_eq!(
            request["active"], 1,
            "a request waits for the answer before"
        );
    }
    let taken = requests.len() - 2;
    assert!(said.contains(&format!("in {taken} requests")), "{said}");
    // Nothing was taken twice.
    let files = std::fs::read_dir(collector.folder.path()).expect("the folder");
    assert_eq!(files.count(), taken + 1);
}

#[test]
fn samples_with_times_are_divided_too() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("inline", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let program = program.to_string_lossy().into_owned();
    let words = [
        "record",
        "-e",
        "cpu-clock",
        "-c",
        "250000",
        "-o",
        "perf.data",
        "--",
    ];
    done(folder.path(), &[&words[..], &[&program, "200"]].concat());
    let collector = or_skip!(Collector::start("grpc", &[]));
    // There is less room than the times of the most frequent stack take.
    let more = ["--push-size", "2K", "--service", "shop"];
    let output = push(folder.path(), &collector.url(), &more);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let rows = report(folder.path(), &["--inline"]);
    let sums = or_skip!(collector.sums("cpu-clock"));
    assert_eq!(sums, by_function(&rows, "weight"));
    let mut times = 0;
    for profile in or_skip!(collector.taken()) {
        for sample in list(&profile["samples"]) {
            times += list(&sample["times"]).len() as u64;
        }
    }
    assert_eq!(times, by_function(&rows, "samples").values().sum::<u64>());
    let requests = collector.requests();
    assert!(requests.len() > 3, "{requests:?}");
    for request in &requests {
        assert!(number(&request["size"]) <= 2 << 10, "{request}");
    }
    let first = or_skip!(read_file(&collector.folder.path().join("0.pb")));
    assert_eq!(first["resource"]["service.name"], "shop");
}

#[test]
fn a_profile_beyond_grpc_s_limit_arrives() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut stacks = String::new();
    let mut total = 0;
    for number in 0..6_000_u64 {
        let name = format!("function_{number}_{}", "x".repeat(1_000));
        stacks += &format!("main;outer_{};{name} {}\n", number % 7, number + 1);
        total += number + 1;
    }
    std::fs::write(folder.join("stacks.folded"), stacks).expect("a file");
    done(folder, &["import", "stacks.folded", "-o", "perf.data"]);
    done(folder, &["export", "--to", "otlp"]);
    let size = std::fs::metadata(folder.join("profile.otlp.pb")).expect("the file");
    assert!(size.len() > 4 << 20, "{size:?}");
    // The collector has the limit of 4 MiB that gRPC has by default.
    let collector = or_skip!(Collector::start("grpc", &[]));
    let whole = push(folder, &collector.url(), &["--push-size", "100M"]);
    assert_eq!(whole.status.code(), Some(1));
    assert!(
        said(&whole).contains("RESOURCE_EXHAUSTED"),
        "{}",
        said(&whole)
    );
    assert!(collector.requests().is_empty(), "gRPC itself refuses it");
    let output = push(folder, &collector.url(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let requests = collector.requests();
    assert!(requests.len() > 1, "{requests:?}");
    let mut sum = 0;
    for profile in or_skip!(collector.taken()) {
        if profile["type"][0] != "samples" {
            sum += sums(&profile).0.values().sum::<u64>();
        }
    }
    assert_eq!(sum, total);
}

#[test]
fn a_lost_answer_is_known_by_the_profiles_ids() {
    let recorded = or_skip!(inlined());
    for protocol in ["grpc", "http"] {
        let collector = or_skip!(Collector::start(protocol, &["lost", "ok"]));
        or_skip!(arrives(
            &recorded,
            &collector,
            &["--push-protocol", protocol]
        ));
        // Both are the same, to the last byte.
        let file = |number: u32| {
            let file = collector.folder.path().join(format!("{number}.pb"));
            std::fs::read(file).expect("a request")
        };
        assert_eq!(file(0), file(1), "{protocol}");
    }
}

#[test]
fn closed_connections_are_opened_again() {
    let recorded = or_skip!(inlined());
    for protocol in ["grpc", "http"] {
        let collector = or_skip!(Collector::start(protocol, &[]));
        let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", proxy.local_addr().expect("an address"));
        let port = collector.port;
        static CLOSED: AtomicUsize = AtomicUsize::new(0);
        CLOSED.store(0, Ordering::SeqCst);
        std::thread::spawn(move || {
            for (number, client) in proxy.incoming().enumerate() {
                let mut client = client.expect("a connection");
                if number < 2 {
                    // Within the request, and before it.
                    let mut some = vec![0; 100 * number];
                    let _ = client.read_exact(&mut some);
                    CLOSED.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).expect("the collector");
                relay(&client, &server);
                relay(&server, &client);
            }
        });
        let folder = recorded.folder.path();
        let output = push(folder, &url, &["--push-protocol", protocol]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(CLOSED.load(Ordering::SeqCst), 2);
        let rows = report(folder, &["--inline", "-e", "cpu-clock"]);
        let sums = or_skip!(collector.sums("cpu-clock"));
        assert_eq!(sums, by_function(&rows, "weight"), "{protocol}");
    }
}

/// Copies what one end sends to the other one.
fn relay(from: &TcpStream, to: &TcpStream) {
    let mut from = from.try_clone().expect("a socket");
    let mut to = to.try_clone().expect("a socket");
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

#[test]
fn refused_profiles_and_remarks_are_said() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    for protocol in ["grpc", "http"] {
        let behaviours = ["reject:3:too old", "warn:soon \u{1b}[31mfull"];
        let collector = or_skip!(Collector::start(protocol, &behaviours));
        let more = ["--push-protocol", protocol];
        let output = push(folder, &collector.url(), &more);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let refused = "the collector refused 3 profiles of a request with 4 profiles: too old";
        assert!(text.contains(refused), "{text}");
        assert_eq!(collector.requests().len(), 1, "it is not sent again");
        let output = push(folder, &collector.url(), &more);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("the collector says: soon"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn final_errors_are_not_tried_again() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    for (protocol, behaviour, text) in [
        ("grpc", "fail:INVALID_ARGUMENT", "INVALID_ARGUMENT: no room"),
        ("grpc", "fail:UNAUTHENTICATED:1", "UNAUTHENTICATED: no room"),
        ("grpc", "fail:RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
        ("http", "fail:400", "HTTP 400 Bad Request: no room"),
        ("http", "fail:500:1", "HTTP 500 Internal Server Error"),
    ] {
        let collector = or_skip!(Collector::start(protocol, &[behaviour]));
        let output = push(folder, &collector.url(), &["--push-protocol", protocol]);
        assert_eq!(output.status.code(), Some(1), "{behaviour}");
        assert!(said(&output).contains(text), "{}", said(&output));
        assert!(said(&output).contains("refuses the request"));
        assert_eq!(collector.requests().len(), 1, "{behaviour}");
    }
    // Requests before the refused one are said.
    let behaviours = ["ok", "ok", "fail:INVALID_ARGUMENT"];
    let collector = or_skip!(Collector::start("grpc", &behaviours));
    let output = push(folder, &collector.url(), &["--push-size", "2K"]);
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(
        text.contains("in 2 requests") && text.contains("before one failed"),
        "{text}"
    );
}

#[test]
fn tries_end_after_the_time_that_was_given() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let always = ["fail:UNAVAILABLE"; 60];
    let collector = or_skip!(Collector::start("grpc", &always));
    let output = push(folder, &collector.url(), &["--push-for", "1.5"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("did not take the request in"),
        "{}",
        said(&output)
    );
    let tries = collector.requests().len();
    assert!((2..10).contains(&tries), "{tries}");
    let output = push(folder, &collector.url(), &["--push-for", "0"]);
    assert!(said(&output).contains("in 1 try"), "{}", said(&output));
    assert_eq!(collector.requests().len(), tries + 1);
    // A wait that is longer than the time is not begun.
    for (protocol, behaviour) in [("grpc", "fail:UNAVAILABLE:3600"), ("http", "fail:503:3600")] {
        let collector = or_skip!(Collector::start(protocol, &[behaviour]));
        let output = push(folder, &collector.url(), &["--push-protocol", protocol]);
        assert_eq!(output.status.code(), Some(1));
        let text = said(&output);
        assert!(text.contains("it asks to wait 3600.0 s"), "{text}");
        assert_eq!(collector.requests().len(), 1);
    }
}

#[test]
fn nobody_at_the_port_is_an_error_with_a_hint() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    for (protocol, hint) in [
        ("grpc", "--push-protocol http"),
        ("http", "--push-protocol grpc"),
    ] {
        let more = ["--push-for", "0", "--push-protocol", protocol];
        let output = push(folder, &url, &more);
        assert_eq!(output.status.code(), Some(1));
        let text = said(&output);
        assert!(
            text.contains("onnection refused") && text.contains(hint),
            "{text}"
        );
    }
    // A server of another protocol.
    let collector = or_skip!(Collector::start("grpc", &[]));
    let more = ["--push-for", "0", "--push-protocol", "http"];
    let output = push(folder, &collector.url(), &more);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let collector = or_skip!(Collector::start("http", &[]));
    let output = push(folder, &collector.url(), &["--push-for", "0"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("--push-protocol http"),
        "{}",
        said(&output)
    );
}

#[test]
fn http_has_the_specification_s_path_and_waits() {
    let recorded = or_skip!(inlined());
    let behaviours = ["fail:503:1", "fail:429", "fail:502", "lost", "ok"];
    let collector = or_skip!(Collector::start("http", &behaviours));
    let more = ["--push-protocol", "http", "--push-size", "2K"];
    or_skip!(arrives(&recorded, &collector, &more));
    let requests = collector.requests();
    for request in &requests {
        assert_eq!(request["headers"]["path"], "/v1development/profiles");
        assert_eq!(request["headers"]["content-type"], "application/x-protobuf");
    }
    let time = |place: usize| requests[place]["time"].as_f64().expect("a time");
    assert!(time(1) - time(0) >= 1.0, "{requests:?}");
    // A path of one's own is used as it is.
    let url = format!("{}/api/profiles", collector.url());
    let output = push(recorded.folder.path(), &url, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("404 Not Found: no such path"),
        "{}",
        said(&output)
    );
    let last = collector.requests().pop().expect("a request");
    assert_eq!(last["headers"]["path"], "/api/profiles");
}

#[test]
fn headers_are_sent_and_not_shown() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    for protocol in ["grpc", "http"] {
        let collector = or_skip!(Collector::start(protocol, &[]));
        let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["export", "--to", "otlp", "--push", &collector.url()])
            .args(["--push-protocol", protocol, "--push-header", "x-tenant=me"])
            .env(
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20secret",
            )
            .current_dir(folder)
            .output()
            .expect("dioptra runs");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let requests = collector.requests();
        assert_eq!(requests[0]["headers"]["authorization"], "Bearer secret");
        assert_eq!(requests[0]["headers"]["x-tenant"], "me");
    }
}

#[test]
fn encrypted_connections_trust_the_system_s_certificates_only() {
    let openssl = or_skip!(programs::need_tool("openssl"));
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN=dioptra-test -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
                 -keyout key.pem -out certificate.pem";
    let made = Command::new(openssl)
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
    let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
    let environment = [("KEY", &*key), ("CERTIFICATE", &*certificate)];
    let collector = or_skip!(Collector::with("grpc", &[], &environment));
    let url = format!("https://127.0.0.1:{}", collector.port);
    let output = push(folder, &url, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("certificate"), "{}", said(&output));
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["export", "--to", "otlp", "--push", &url])
        .env("SSL_CERT_FILE", &certificate)
        .current_dir(folder)
        .output()
        .expect("dioptra runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(collector.requests().len(), 1);
}

#[test]
fn wrong_arguments_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let status = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["export", "--to"])
            .args(words)
            .current_dir(folder.path())
            .output()
            .expect("dioptra runs");
        (output.status.code(), said(&output))
    };
    for words in [
        &["otlp", "--push", "http://127.0.0.1:1", "-o", "x"][..],
        &["otlp", "--push-for", "3"],
        &["otlp", "--push", "http://127.0.0.1:1", "--push-size", "0"],
        &["otlp", "--push", "http://127.0.0.1:1", "--push-header", "x"],
    ] {
        assert_eq!(status(words).0, Some(2), "{words:?}");
    }
    let (code, text) = status(&["pprof", "--push", "http://127.0.0.1:1"]);
    assert!(code == Some(1) && text.contains("--to otlp"), "{text}");
    let (code, text) = status(&["pprof", "--service", "shop"]);
    assert!(code == Some(1) && text.contains("--service"), "{text}");
}

#[test]
fn servers_that_answer_nonsense_or_nothing_are_errors() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let answers: [&'static [u8]; 4] = [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 301 Moved\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n",
        b"",
    ];
    for answer in answers {
        for protocol in ["grpc", "http"] {
            let server = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}", server.local_addr().expect("an address"));
            let served = std::thread::spawn(move || {
                let (mut client, _) = server.accept().expect("a connection");
                client
                    .set_read_timeout(Some(Duration::from_secs(20)))
                    .expect("a socket");
                let mut some = [0; 64];
                let _ = client.read(&mut some);
                let _ = client.write_all(answer);
                let _ = client.shutdown(std::net::Shutdown::Write);
                // Until the other end closes, so that no reset hides the answer.
                let _ = std::io::copy(&mut client, &mut std::io::sink());
            });
            let more = ["--push-for", "0", "--push-protocol", protocol];
            let output = push(folder, &url, &more);
            let text = said(&output);
            let is_taken = protocol == "http" && answer.ends_with(b"hello");
            let expected = if is_taken { Some(0) } else { Some(1) };
            assert_eq!(output.status.code(), expected, "{text}");
            if is_taken {
                assert!(text.contains("no ExportProfilesServiceResponse"), "{text}");
            }
            served.join().expect("the server");
        }
    }
}
