//! `--debuginfod`: nobody is asked without it, an encrypted server is reached, a bad one costs little.

use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A server of the current folder, encrypted, on a port that it prints; it logs requests to standard error.
const SERVER: &str = r#"
import http.server, ssl, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A script that makes certificates of an authority of our own and of a server on this machine.
const CERTIFICATES: &str = r#"
set -e
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout authority.key -out authority.pem \
  -addext basicConstraints=critical,CA:TRUE
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' > extensions
openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
  -extfile extensions -out server.pem
"#;

/// A recording of a stripped program, whose debug file lies where a server would have it.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Result<Self, Skip> {
        for tool in ["perf", "gcc", "objcopy", "strip"] {
            programs::need_tool(tool)?;
        }
        programs::need_sampling()?;
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::copy(programs::c("shares", &["-g"])?, at("shares")).expect("a copy");
        let debug = at("debuginfo");
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(at("shares"))
            .arg(&debug));
        run(Command::new("strip").arg(at("shares")));
        let id = dioptra_symbols::build_id(&at("shares"))
            .expect("an ELF file")
            .ok_or_else(|| Skip::new("this gcc writes no build ids"))?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let served = at("www").join("buildid").join(id);
        std::fs::create_dir_all(&served).expect("a folder");
        std::fs::rename(debug, served.join("debuginfo")).expect("moved");
        run(Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock", "-F", "1000", "-o"])
            .arg(at("perf.data"))
            .arg("--")
            .arg(at("shares"))
            .arg("100")
            .env("HOME", folder.path()));
        Ok(Scene { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a report with nothing of this machine's servers and files in its environment.
    fn report(&self, options: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        for name in [
            "DEBUGINFOD_URLS",
            "DEBUGINFOD_TIMEOUT",
            "DIOPTRA_DEBUGINFOD",
            "https_proxy",
            "HTTPS_PROXY",
            "http_proxy",
            "HTTP_PROXY",
            "ALL_PROXY",
            "all_proxy",
        ] {
            command.env_remove(name);
        }
        command
            .args(["report", "--format", "csv", "-i"])
            .arg(self.path("perf.data"))
            .args(options)
            .env("DEBUGINFOD_CACHE_PATH", self.path("cache"))
            .envs(variables.iter().copied())
            .output()
            .expect("dioptra runs")
    }
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn has_names(output: &Output) -> bool {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).contains(",sixty,")
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an encrypted server of `www`. Returns the server, its port, and the file it logs to.
fn serve(scene: &Scene) -> Result<(Running, u16, PathBuf), Skip> {
    let python = programs::need_tool("python3")?;
    programs::need_tool("openssl")?;
    run(Command::new("sh")
        .args(["-c", CERTIFICATES])
        .current_dir(scene.folder.path()));
    let log = scene.path("log");
    let mut child = Command::new(python)
        .args(["-c", SERVER])
        .arg(scene.path("server.pem"))
        .arg(scene.path("server.key"))
        .current_dir(scene.path("www"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("python starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
    let running = Running(child);
    let port = line.trim().parse();
    port.map(|port| (running, port, log))
        .map_err(|_| Skip::new("python's encrypted server does not start"))
}

fn asked(log: &Path) -> usize {
    let log = std::fs::read_to_string(log).expect("the log");
    log.matches("GET /buildid/").count()
}

#[test]
fn an_encrypted_server_is_asked_once_and_only_on_request() {
    let scene = or_skip!(Scene::new());
    let (_server, port, log) = or_skip!(serve(&scene));
    let url = format!("https://localhost:{port}");
    let authority = scene.path("authority.pem");
    let trusted = ("SSL_CERT_FILE", authority.to_str().expect("a path"));
    let urls = ("DEBUGINFOD_URLS", url.as_str());

    // The variable alone, which many systems set for everybody, asks nobody.
    assert!(!has_names(&scene.report(&[], &[trusted, urls])));
    assert!(!has_names(
        &scene.report(&[], &[trusted, urls, ("DIOPTRA_DEBUGINFOD", "0")])
    ));
    assert_eq!(asked(&log), 0);

    // Nobody vouches for the server.
    let given = format!("--debuginfod={url}");
    let output = scene.report(&[&given], &[("SSL_CERT_FILE", "/dev/null")]);
    assert!(!has_names(&output));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&url), "{told}");
    assert_eq!(asked(&log), 0);

    assert!(has_names(&scene.report(&[&given], &[trusted])));
    let shares = |log: &Path| {
        let log = std::fs::read_to_string(log).expect("the log");
        log.lines().filter(|line| line.contains("\" 200 ")).count()
    };
    assert_eq!(shares(&log), 1);
    // The file comes from the cache, whichever way the server is named.
    assert!(has_names(
        &scene.report(&["--debuginfod"], &[trusted, urls])
    ));
    let by_variable = ("DIOPTRA_DEBUGINFOD", "1");
    assert!(has_names(&scene.report(&[], &[trusted, urls, by_variable])));
    assert_eq!(shares(&log), 1);
}

#[test]
fn a_silent_server_costs_one_timeout() {
    let scene = or_skip!(Scene::new());
    // The system accepts connections, but nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "--debuginfod=http://{0},https://{0}",
        silent.local_addr().expect("its address")
    );
    let output = scene.report(&[&url], &[("DEBUGINFOD_TIMEOUT", "1")]);
    assert!(!has_names(&output));
    // Each of the two addresses is given up once, although there are several files to ask for.
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.matches("not asked again").count(), 2, "{told}");
}

#[test]
fn asking_nobody_is_an_error() {
    let scene = or_skip!(Scene::new());
    for (options, variables) in [
        (&["--debuginfod"][..], &[][..]),
        (&[], &[("DIOPTRA_DEBUGINFOD", "1")]),
    ] {
        let output = scene.report(options, variables);
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("DEBUGINFOD_URLS"), "{told}");
    }
    let output = scene.report(&["--vmlinux", "/nonexistent"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--vmlinux"));
}
