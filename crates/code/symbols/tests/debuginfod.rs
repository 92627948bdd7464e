//! Debug files from a server of our own, on loopback.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dioptra_symbols::{
    Debuginfod, DebuginfodCause, ModuleKind, ModuleRequest, ModuleSymbols, Note, SymbolOptions,
    Symbolizer,
};
use support::{compile, output_of};

/// Longer than any answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const PROGRAM: &str = r#"
static __attribute__((noinline)) int hidden(int x) { return x * 7 + 1; }
int main(int n, char **v) { return hidden(n); }
"#;

/// Serves answers; gives its address and the lines with which it was asked.
fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/some/where", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut first = String::new();
            stream.read_line(&mut first).unwrap();
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            log.lock().unwrap().push(first.trim().to_owned());
            // The other side may have gone.
            let _ = stream.get_mut().write_all(&answer(&first));
        }
    });
    (address, asked)
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A stripped program, its debug file, and its build id.
fn program(dir: &Path) -> Option<(PathBuf, Vec<u8>, String)> {
    let flags = ["-O1", "-g", "-Wl,--build-id"];
    let whole = compile(dir, "program", PROGRAM, &flags)?;
    let debug = dir.join("separate");
    let mut objcopy = Command::new("objcopy");
    output_of(objcopy.arg("--only-keep-debug").arg(&whole).arg(&debug))?;
    let bytes = std::fs::read(&debug).unwrap();
    std::fs::remove_file(&debug).unwrap();
    output_of(Command::new("strip").arg(&whole))?;
    let id = dioptra_symbols::build_id(&whole).unwrap().unwrap();
    let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some((whole, bytes, id))
}

fn load(path: &Path, debuginfod: Option<Debuginfod>) -> ModuleSymbols {
    let options = SymbolOptions {
        debug_dirs: Vec::new(),
        debuginfod,
        ..SymbolOptions::default()
    };
    Symbolizer::new(options).load(&ModuleRequest {
        kind: ModuleKind::File,
        path,
        build_id: None,
    })
}

fn has_hidden(symbols: &ModuleSymbols) -> bool {
    symbols
        .functions()
        .any(|function| function.name == "hidden")
}

/// The causes for which servers were passed over.
fn told(symbols: &ModuleSymbols) -> Vec<DebuginfodCause> {
    let notes = symbols.notes().iter();
    notes
        .filter_map(|note| match note {
            Note::Debuginfod { why, .. } => Some(why.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_debug_file_is_fetched_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some((path, debug, id)) = program(dir.path()) else {
        return;
    };
    let body = debug.clone();
    let (server, asked) = serve(move |_| answer("200 OK", &body));
    let cache = dir.path().join("cache");
    let servers = Debuginfod::new(vec![server], cache.clone(), LONG);

    assert!(!has_hidden(&load(&path, None)));
    assert!(
        asked.lock().unwrap().is_empty(),
        "asked without being told to"
    );

    for _ in 0..2 {
        let symbols = load(&path, Some(servers.clone()));
        assert!(has_hidden(&symbols), "{:?}", symbols.notes());
    }
    let expected = format!("GET /some/where/buildid/{id}/debuginfo HTTP/1.1");
    assert_eq!(*asked.lock().unwrap(), [expected]);
    assert_eq!(
        std::fs::read(cache.join(id).join("debuginfo")).unwrap(),
        debug
    );
}

#[test]
fn what_no_server_has_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let Some((path, ..)) = program(dir.path()) else {
        return;
    };
    let (server, asked) = serve(|_| answer("404 Not Found", b"no"));
    let servers = Debuginfod::new(vec![server], dir.path().join("cache"), LONG);
    for _ in 0..2 {
        let symbols = load(&path, Some(servers.clone()));
        assert!(!has_hidden(&symbols) && told(&symbols).is_empty());
    }
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[test]
fn bad_servers_are_told_and_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let Some((path, debug, _)) = program(dir.path()) else {
        return;
    };
    let cut = [answer("200 OK", &debug)[..200].to_vec()].concat();
    let (cut_short, _) = serve(move |_| cut.clone());
    let (no_http, _) = serve(|_| b"hello\r\n\r\n".to_vec());
    let (broken, asked) = serve(|_| answer("500 Broken", b""));
    // Nobody listens at the first port.
    let closed = "http://127.0.0.1:1".to_owned();
    let bad = [
        cut_short,
        no_http,
        broken,
        closed,
        "ftp://no.example".to_owned(),
    ];
    let servers = Debuginfod::new(bad.to_vec(), dir.path().join("cache"), LONG);
    let symbols = load(&path, Some(servers.clone()));
    assert!(!has_hidden(&symbols));
    let causes = told(&symbols);
    let [
        _,
        _,
        DebuginfodCause::Status(500),
        DebuginfodCause::Io(refused),
        DebuginfodCause::Address,
    ] = &causes[..]
    else {
        panic!("{causes:?}");
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // Not asked again, by clones neither.
    assert!(told(&load(&path, Some(servers))).is_empty());
    assert_eq!(asked.lock().unwrap().len(), 1);

    // Another build's file is refused; a good server behind bad ones is reached.
    let (good, _) = serve(move |_| answer("200 OK", &debug));
    let mut all = bad.to_vec();
    all.push(good);
    let servers = Debuginfod::new(all, dir.path().join("cache"), LONG);
    assert!(has_hidden(&load(&path, Some(servers))));
}

#[test]
fn a_silent_server_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let Some((path, ..)) = program(dir.path()) else {
        return;
    };
    // The system accepts connections, but nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let cache = dir.path().join("cache");
    let servers = Debuginfod::new(vec![server], cache, Duration::from_millis(100));
    let symbols = load(&path, Some(servers));
    assert_eq!(told(&symbols).len(), 1, "{:?}", symbols.notes());
    drop(listener);
}
