//! A store in a bucket of a server that speaks S3's protocol: moto's, on this machine.
//!
//! `DIOPTRA_PYTHON` names a Python that has it: `pip install 'moto[server]'`.
#![cfg(feature = "s3")]

mod common;

use common::{Recording, checked, store_command, text, word};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server with the bucket `profiles`, which ends with this value.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Result<Server, Skip> {
        let named = std::env::var_os("DIOPTRA_PYTHON").map(PathBuf::from);
        let python = named.map_or_else(|| programs::need_tool("python3"), Ok)?;
        let import = Command::new(&python)
            .args(["-c", "import moto.server"])
            .output();
        if !import.is_ok_and(|output| output.status.success()) {
            return Err(Skip::new(
                "Python has no moto (pip install 'moto[server]'; DIOPTRA_PYTHON names another Python)",
            ));
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Command::new(python)
            .args([
                "-m",
                "moto.server",
                "-H",
                "127.0.0.1",
                "-p",
                &port.to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { process, port };
        let start = Instant::now();
        while !server.make_bucket() {
            assert!(start.elapsed() < Duration::from_secs(120), "no server");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    fn make_bucket(&self) -> bool {
        let request = "PUT /profiles HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request\r\n\
             Connection: close\r\n\r\n";
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    fn command(&self) -> Command {
        let mut command = store_command();
        command
            .env("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .env("AWS_REGION", "us-east-1");
        command
    }
}

#[test]
fn a_bucket_is_a_store() {
    const STORE: &str = "s3://profiles/of/all";
    let server = or_skip!(Server::start());
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let add = |store: &str, words: &[&str]| {
        let output = checked(
            server
                .command()
                .args(["add", word(&recording.file), "--to", store])
                .args(words),
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let told = add(STORE, &["--service", "web"]);
    assert!(told.contains("added as"), "{told}");
    let told = add(STORE, &[]);
    assert!(told.contains("is there already"), "{told}");
    // Two writers at once, of which one is faster.
    let other = "s3://profiles/other";
    let writers = ["a", "a"].map(|host| {
        server
            .command()
            .args(["add", word(&recording.file), "--to", other, "--host", host])
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    for store in [STORE, other] {
        let run = |words: &[&str]| {
            text(&checked(
                server.command().args(words).args(["--store", store]),
            ))
        };
        let list = run(&["list"]);
        assert!(list.ends_with("# 1 profile\n"), "{list}");
        let verified = run(&["verify"]);
        assert!(verified.contains("# 1 profile is whole"), "{verified}");
        let collected = run(&["gc", "--older-than", "0s"]);
        assert!(collected.contains("# deleted 0 objects"), "{collected}");
        #[cfg(feature = "query")]
        {
            let answer = run(&["query", "--format", "json", common::TOTALS]);
            let answer = common::totals_of(&serde_json::from_str(&answer).unwrap());
            assert_eq!(answer, recording.report());
        }
    }
}

#[cfg(feature = "query")]
#[test]
fn profiles_in_a_bucket_are_merged() {
    const STORE: &str = "s3://profiles/merged";
    const COPIES: usize = 4;
    let server = or_skip!(Server::start());
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let run = |words: &[&str]| {
        let mut command = server.command();
        text(&checked(command.args(words).args(["--store", STORE])))
    };
    let copies: Vec<PathBuf> = (0..COPIES)
        .map(|number| {
            let file = recording.folder.path().join(format!("copy-{number}.data"));
            common::distinct_copy(&recording.file, &file, number);
            file
        })
        .collect();
    let mut add = server.command();
    add.arg("add").args(&copies);
    checked(add.args(["--to", STORE, "--service", "web", "--host", "a"]));
    let rows = || {
        let answer = run(&["query", "--format", "json", common::TOTALS]);
        common::totals_of(&serde_json::from_str(&answer).unwrap())
    };
    let mut expected = recording.report();
    for (samples, weight) in expected.values_mut() {
        *samples *= COPIES as i64;
        *weight *= COPIES as i64;
    }
    assert_eq!(rows(), expected);
    let merged = run(&["compact", "--settle", "0s"]);
    assert!(
        merged.contains("# merged 4 profiles in 1 group: 5 objects of"),
        "{merged}"
    );
    assert!(merged.contains("instead of 20 objects"), "{merged}");
    assert_eq!(rows(), expected);
    let collected = run(&["gc", "--older-than", "0s"]);
    assert!(collected.contains("# deleted 20 objects"), "{collected}");
    assert_eq!(rows(), expected);
    let verified = run(&["verify"]);
    assert!(verified.contains("# 4 profiles are whole"), "{verified}");
    // Merged recordings are known, and there is nothing left to merge.
    let mut again = server.command();
    again.arg("add").args(&copies).args(["--to", STORE]);
    let told = String::from_utf8(checked(&mut again).stderr).unwrap();
    assert_eq!(told.matches("is there already").count(), COPIES, "{told}");
    let merged = run(&["compact", "--settle", "0s"]);
    assert!(merged.contains("# merged 0 profiles"), "{merged}");
    assert_eq!(rows(), expected);
}
