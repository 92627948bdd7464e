//! A server that speaks as much of S3's protocol as a store needs, and that can be slow, fail, or stop answering.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The way in which the server treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// The server answers at once.
    Well,
    /// The server answers after this time.
    Slow(Duration),
    /// The server answers each second request with an error that says to try again.
    Busy,
    /// The server answers this many requests, and then none: connections stay open.
    Silent(usize),
    /// The server answers this many requests. It carries the next one out, and closes the connection without an answer, and then
    /// closes all connections at once.
    Cut(usize),
}

struct State {
    objects: BTreeMap<String, Vec<u8>>,
    manner: Manner,
    requests: usize,
    /// The keys that were read, in order.
    reads: Vec<String>,
    /// Connections that are kept open without an answer.
    held: Vec<TcpStream>,
}

/// A server with one bucket, which ends with this value.
pub struct Bucket {
    state: Arc<Mutex<State>>,
    stops: Arc<AtomicBool>,
    port: u16,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        // The thread that accepts connections wakes up.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: &'static str,
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }
}

impl Bucket {
    pub fn start() -> Bucket {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            manner: Manner::Well,
            requests: 0,
            reads: Vec::new(),
            held: Vec::new(),
        }));
        let stops = Arc::new(AtomicBool::new(false));
        let (own, stop) = (Arc::clone(&state), Arc::clone(&stops));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&own);
                if let Ok(stream) = stream {
                    std::thread::spawn(move || serve(stream, &state));
                }
            }
        });
        Bucket { state, stops, port }
    }

    /// Changes the server's manner, and counts requests from 0 again.
    pub fn behave(&self, manner: Manner) {
        let mut state = self.state.lock().unwrap();
        state.manner = manner;
        state.requests = 0;
        state.held.clear();
    }

    /// Returns the number of requests since the last change of manner.
    pub fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    /// Returns how often objects with this prefix were read since the last call.
    pub fn reads(&self, prefix: &str) -> usize {
        let reads = std::mem::take(&mut self.state.lock().unwrap().reads);
        reads.iter().filter(|key| key.starts_with(prefix)).count()
    }

    /// Deletes all objects.
    pub fn clear(&self) {
        self.state.lock().unwrap().objects.clear();
    }

    /// Returns the command of the program under test, which finds this server.
    pub fn command(&self) -> Command {
        let mut command = super::store_command();
        command
            .env("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .env("AWS_REGION", "us-east-1");
        command
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read(&mut reader) {
        let (manner, number) = {
            let mut state = state.lock().unwrap();
            state.requests += 1;
            if request.method == "GET" {
                let key = request.path.trim_start_matches("/profiles/");
                state.reads.push(key.to_owned());
            }
            (state.manner, state.requests)
        };
        match manner {
            Manner::Silent(answered) if number > answered => {
                state.lock().unwrap().held.push(stream);
                return;
            }
            Manner::Cut(answered) if number > answered => {
                if number == answered + 1 {
                    answer(&request, &mut state.lock().unwrap().objects);
                }
                return;
            }
            Manner::Slow(time) => std::thread::sleep(time),
            _ => {}
        }
        let answer = match manner {
            Manner::Busy if number % 2 == 1 => Answer::of("503 Slow Down", ""),
            _ => answer(&request, &mut state.lock().unwrap().objects),
        };
        let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
        for header in &answer.headers {
            let _ = write!(head, "{header}\r\n");
        }
        if !answer
            .headers
            .iter()
            .any(|header| header.starts_with("Content-Length"))
        {
            let _ = write!(head, "Content-Length: {}\r\n", answer.body.len());
        }
        head.push_str("\r\n");
        let body: &[u8] = match &*request.method {
            "HEAD" => &[],
            _ => &answer.body,
        };
        if stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body))
            .is_err()
        {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let target = words.next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) => {
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
    }
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Request {
        method,
        path: decoded(path),
        query: query.to_owned(),
        headers,
        body,
    })
}

/// Returns a text with its `%XX` as bytes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).unwrap()
}

fn tag(bytes: &[u8]) -> String {
    // FNV-1a.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:016x}\"")
}

const DATE: &str = "Sat, 28 Nov 2026 12:00:00 GMT";

fn answer(request: &Request, objects: &mut BTreeMap<String, Vec<u8>>) -> Answer {
    let key = request
        .path
        .strip_prefix("/profiles")
        .unwrap_or(&request.path);
    let key = key.trim_start_matches('/').to_owned();
    match &*request.method {
        "GET" if key.is_empty() => list(&request.query, objects),
        "POST" => {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            let mut done = String::from("<DeleteResult>");
            for part in text.split("<Key>").skip(1) {
                let name = part.split("</Key>").next().unwrap_or_default();
                objects.remove(name);
                let _ = write!(done, "<Deleted><Key>{name}</Key></Deleted>");
            }
            done.push_str("</DeleteResult>");
            Answer::of("200 OK", done)
        }
        "PUT" => {
            let only_new = request
                .headers
                .get("if-none-match")
                .is_some_and(|tag| tag == "*");
            if only_new && objects.contains_key(&key) {
                return Answer::of("412 Precondition Failed", "");
            }
            let mut answer = Answer::of("200 OK", "");
            answer.headers.push(format!("ETag: {}", tag(&request.body)));
            objects.insert(key, request.body.clone());
            answer
        }
        "DELETE" => {
            objects.remove(&key);
            Answer::of("204 No Content", "")
        }
        "GET" | "HEAD" => {
            let Some(bytes) = objects.get(&key) else {
                return Answer::of("404 Not Found", "");
            };
            let mut answer = Answer::of("200 OK", bytes.clone());
            answer.headers.push(format!("ETag: {}", tag(bytes)));
            answer.headers.push(format!("Last-Modified: {DATE}"));
            answer.headers.push("Accept-Ranges: bytes".to_owned());
            if let Some(range) = request.headers.get("range") {
                let range = range.trim_start_matches("bytes=");
                let (start, end) = range.split_once('-').unwrap();
                let length = bytes.len();
                let (start, end) = match (start, end) {
                    ("", last) => (length.saturating_sub(last.parse().unwrap()), length),
                    (start, "") => (start.parse().unwrap(), length),
                    (start, end) => {
                        let end: usize = end.parse().unwrap();
                        (start.parse().unwrap(), (end + 1).min(length))
                    }
                };
                answer.status = "206 Partial Content";
                answer.body = bytes[start..end].to_vec();
                answer
                    .headers
                    .push(format!("Content-Range: bytes {start}-{}/{length}", end - 1));
            } else if request.method == "HEAD" {
                answer
                    .headers
                    .push(format!("Content-Length: {}", bytes.len()));
            }
            answer
        }
        _ => Answer::of("400 Bad Request", ""),
    }
}

fn list(query: &str, objects: &BTreeMap<String, Vec<u8>>) -> Answer {
    let prefix = query
        .split('&')
        .find_map(|part| part.strip_prefix("prefix="))
        .map(decoded)
        .unwrap_or_default();
    let mut text = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (key, bytes) in objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>2026-11-28T12:00:00.000Z</LastModified>\
             <ETag>{}</ETag><Size>{}</Size></Contents>",
            tag(bytes),
            bytes.len()
        );
    }
    text.push_str("</ListBucketResult>");
    Answer::of("200 OK", text)
}
