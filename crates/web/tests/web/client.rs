//! A server in this process, and requests to it as bytes: browsers would not send what attackers do.

use dioptra_web::{Server, Stopper, WebOptions};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running server.
pub struct Running {
    pub port: u16,
    pub token: String,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

/// A response.
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&self.body));
        })
    }

    /// The error's code, of a response that is one.
    pub fn code(&self) -> String {
        let json = self.json();
        json["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Running {
    /// Starts a server and waits until its profiles are loaded.
    pub fn start(files: &[&Path], symfs: Option<&Path>) -> Running {
        let running = Running::start_at_once(files, symfs);
        running.wait_for(|status| {
            let profiles = status["profiles"].as_array().expect("profiles");
            let is_done =
                |profile: &Value| matches!(profile["state"].as_str(), Some("ready" | "failed"));
            profiles.iter().all(is_done)
        });
        running
    }

    /// Starts a server.
    pub fn start_at_once(files: &[&Path], symfs: Option<&Path>) -> Running {
        Running::start_with(files, symfs, WebOptions::default())
    }

    /// Starts a server with other options.
    pub fn start_with(files: &[&Path], symfs: Option<&Path>, options: WebOptions) -> Running {
        let mut options = WebOptions {
            files: files.iter().map(|path| path.to_path_buf()).collect(),
            ..options
        };
        options.symbols.symfs = symfs.map(Path::to_path_buf);
        options.sources.symfs = symfs.map(Path::to_path_buf);
        let server = Server::bind(&options).expect("a server");
        let url = server.url();
        let (address, token) = url.split_once("/?token=").expect("a token");
        let (_, port) = address.rsplit_once(':').expect("a port");
        Running {
            port: port.parse().expect("a number"),
            token: token.to_owned(),
            stopper: server.stopper(),
            thread: Some(std::thread::spawn(move || server.run().expect("it runs"))),
        }
    }

    /// Sends bytes and reads the whole answer.
    pub fn raw(&self, request: &str) -> Response {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.expect("the end of the head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Response {
            status: status.expect("a status"),
            body: bytes[end + 4..].to_vec(),
            head,
        }
    }

    /// A request with these header lines beside `Host`.
    pub fn request(&self, method: &str, path: &str, headers: &[String]) -> Response {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|line| line.starts_with("Host:")) {
            text += &format!("Host: 127.0.0.1:{}\r\n", self.port);
        }
        for line in headers {
            text += line;
            text += "\r\n";
        }
        self.raw(&(text + "\r\n"))
    }

    pub fn token_line(&self) -> String {
        format!("X-Dioptra-Token: {}", self.token)
    }

    /// Sends a request as the page does.
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[self.token_line()])
    }

    /// Returns the JSON of an answer that must be there.
    pub fn ask(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(
            response.status,
            200,
            "{path}: {}",
            String::from_utf8_lossy(&response.body)
        );
        response.json()
    }

    /// Waits until the status is as wanted.
    pub fn wait_for(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.ask("/api/status");
            if is_wanted(&status) {
                return status;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// The values of a column, of all rows of an answer.
pub fn column(table: &Value, id: &str) -> Vec<Value> {
    let columns = table["columns"].as_array().expect("columns");
    let index = columns.iter().position(|column| column["id"] == id);
    let index = index.unwrap_or_else(|| panic!("no column {id}: {columns:?}"));
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["cells"][index].clone()).collect()
}

/// A text in a query.
pub fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
