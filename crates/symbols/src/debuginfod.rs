//! Debug files from debuginfod servers: only when asked for, each once, and never for long.
//!
//! This speaks plain HTTP; a server with `https://` is told to be out of reach.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use crate::note::{Hex, Note};

/// How long a server's "not found" is believed.
const MISS_HOLDS: Duration = Duration::from_secs(600);
/// Larger debug files aren't fetched.
const LARGEST: u64 = 4 << 30;
/// Longer header lines are no debuginfod server's.
const LONGEST_HEADER: u64 = 64 * 1024;

/// Where debug files may be fetched from, and where they are kept.
#[derive(Debug, Clone)]
pub struct Debuginfod {
    servers: Vec<String>,
    cache: PathBuf,
    timeout: Duration,
    /// Servers that did not answer: not asked again. Shared by clones.
    silent: Arc<Mutex<Vec<String>>>,
}

impl Debuginfod {
    /// Servers (`http://host:port/path`), asked in this order; the directory for what was fetched, laid
    /// out as elfutils do; and the longest time to wait for a file.
    #[must_use]
    pub fn new(servers: Vec<String>, cache: PathBuf, timeout: Duration) -> Self {
        Self {
            servers,
            cache,
            timeout,
            silent: Arc::default(),
        }
    }

    /// As the environment has it: `DEBUGINFOD_URLS`, `DEBUGINFOD_CACHE_PATH` (else below
    /// `XDG_CACHE_HOME`, else `~/.cache`) and `DEBUGINFOD_TIMEOUT` in seconds (else 30). `None` without
    /// servers, or without a place to keep files.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let servers: Vec<String> = text("DEBUGINFOD_URLS")?
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let cache = text("DEBUGINFOD_CACHE_PATH")
            .map(PathBuf::from)
            .or_else(|| {
                let base = text("XDG_CACHE_HOME").map(PathBuf::from);
                let base = base.or_else(|| Some(PathBuf::from(text("HOME")?).join(".cache")));
                Some(base?.join("debuginfod_client"))
            })?;
        let seconds = text("DEBUGINFOD_TIMEOUT").and_then(|text| text.parse().ok());
        let timeout = Duration::from_secs(seconds.filter(|&seconds| seconds > 0).unwrap_or(30));
        (!servers.is_empty()).then(|| Self::new(servers, cache, timeout))
    }

    /// The debug file of a build: from the directory, else from the first server that has it.
    pub(crate) fn find(&self, build_id: &[u8], notes: &mut Vec<Note>) -> Option<PathBuf> {
        let dir = self.cache.join(Hex(build_id).to_string());
        let path = dir.join("debuginfo");
        if let Ok(data) = fs::metadata(&path) {
            if data.len() > 0 {
                return Some(path);
            }
            // An empty file stands for "not found".
            let age = data
                .modified()
                .ok()
                .and_then(|time| SystemTime::now().duration_since(time).ok());
            if age.is_some_and(|age| age < MISS_HOLDS) {
                return None;
            }
        }
        let mut all_answered = true;
        for server in &self.servers {
            match self.ask(server, build_id, &path) {
                Ok(true) => return Some(path),
                Ok(false) => {}
                Err(None) => all_answered = false,
                Err(Some(why)) => {
                    all_answered = false;
                    let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
                    silent.push(server.clone());
                    notes.push(Note::Debuginfod {
                        server: server.clone(),
                        why,
                    });
                }
            }
        }
        if all_answered && fs::create_dir_all(&dir).is_ok() {
            // Only saves the next question.
            let _ = File::create(&path);
        }
        None
    }

    /// Whether a server had the file, which then lies at `path`. `Err(None)`: the server failed before.
    fn ask(&self, server: &str, build_id: &[u8], path: &Path) -> Result<bool, Option<String>> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.iter().any(|silent| silent == server) {
            return Err(None);
        }
        drop(silent);
        let url = Url::parse(server).map_err(|why| Some(why.to_owned()))?;
        let request = url.request(build_id);
        let (path, timeout) = (path.to_path_buf(), self.timeout);
        let (sender, receiver) = mpsc::sync_channel(1);
        // A thread of its own, since looking up a host's name has no time limit. One that comes too late
        // only leaves its file in the directory.
        let fetching = std::thread::Builder::new()
            .name("debuginfod".to_owned())
            .spawn(move || {
                let deadline = Instant::now() + timeout;
                // Nobody listens any more when it is too late.
                let _ = sender.send(fetch(&url, &request, &path, deadline));
            });
        fetching.map_err(|error| Some(error.to_string()))?;
        match receiver.recv_timeout(timeout) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Some(error.to_string())),
            Err(_) => Err(Some(format!("no file within {} s", timeout.as_secs_f32()))),
        }
    }
}

/// A server's address, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    host: String,
    port: u16,
    path: String,
}

impl Url {
    fn parse(url: &str) -> Result<Self, &'static str> {
        let rest = url
            .strip_prefix("http://")
            .ok_or("only http:// servers can be asked, not encrypted ones")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let colon = authority
            .rfind(':')
            .filter(|&at| !authority[at..].contains(']'));
        let (host, port) = match colon {
            Some(at) => (&authority[..at], authority[at + 1..].parse().ok()),
            None => (authority, Some(80)),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        match port {
            Some(port) if !host.is_empty() && is_plain(authority) && is_plain(path) => Ok(Self {
                host: host.to_owned(),
                port,
                path: path.trim_end_matches('/').to_owned(),
            }),
            _ => Err("its address is not http://HOST[:PORT][/PATH]"),
        }
    }

    fn request(&self, build_id: &[u8]) -> String {
        let mut path = String::new();
        if !self.path.is_empty() {
            // Writing to a string can't fail.
            let _ = write!(path, "/{}", self.path);
        }
        // Version 1.0, so that the answer isn't cut into chunks.
        format!(
            "GET {path}/buildid/{}/debuginfo HTTP/1.0\r\nHost: {}:{}\r\nUser-Agent: dioptra/{}\r\nConnection: close\r\n\r\n",
            Hex(build_id),
            self.host,
            self.port,
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// Fetches a file to `path`; false when the server doesn't have it.
fn fetch(url: &Url, request: &str, path: &Path, deadline: Instant) -> io::Result<bool> {
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        } else {
            Ok(left)
        }
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its host has no address");
    let mut connected = None;
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left()?) {
            Ok(stream) => {
                connected = Some(stream);
                break;
            }
            Err(error) => last = error,
        }
    }
    let Some(mut stream) = connected else {
        return Err(last);
    };
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(request.as_bytes())?;
    stream.set_read_timeout(Some(left()?))?;
    let mut answer = BufReader::new(stream);
    let mut header = String::new();
    let status = loop {
        let mut line = String::new();
        (&mut answer).take(LONGEST_HEADER).read_line(&mut line)?;
        if line.trim_end().is_empty() || header.len() as u64 > LONGEST_HEADER {
            break header.split_whitespace().nth(1).map(str::to_owned);
        }
        header.push_str(&line);
        left()?;
    };
    match status.as_deref() {
        Some("200") => {}
        Some("404") => return Ok(false),
        Some(status) => return Err(io::Error::other(format!("it answered {status}"))),
        None => return Err(io::Error::other("its answer is not HTTP")),
    }
    let length = header.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<u64>().ok())?
    });
    if length.is_some_and(|length| length > LARGEST) {
        return Err(io::Error::other("its file is larger than 4 GiB"));
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    // Two may fetch the same file: each writes one of its own and puts it in place whole.
    let part = dir.join(format!(
        "debuginfo.{}.{:?}.part",
        std::process::id(),
        std::thread::current().id()
    ));
    let result = copy(&mut answer, &part, length, left);
    let result = result.and_then(|()| fs::rename(&part, path));
    if result.is_err() {
        // What was fetched so far is of no use.
        let _ = fs::remove_file(&part);
    }
    result.map(|()| true)
}

fn copy(
    answer: &mut BufReader<TcpStream>,
    part: &Path,
    length: Option<u64>,
    left: impl Fn() -> io::Result<Duration>,
) -> io::Result<()> {
    let mut file = File::create(part)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut copied = 0;
    loop {
        answer.get_ref().set_read_timeout(Some(left()?))?;
        let read = answer.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        copied += read as u64;
        if copied > LARGEST {
            return Err(io::Error::other("its file is larger than 4 GiB"));
        }
        file.write_all(&buffer[..read])?;
    }
    if copied == 0 || length.is_some_and(|length| length != copied) {
        return Err(io::Error::other("its answer was cut short"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let url = |text| Url::parse(text).map(|url| (url.host, url.port, url.path));
        let parts = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        assert_eq!(url("http://a.example"), parts("a.example", 80, ""));
        assert_eq!(url("http://a:8002/x/y/"), parts("a", 8002, "x/y"));
        assert_eq!(url("http://[::1]:80"), parts("::1", 80, ""));
        for bad in ["https://a", "http://", "http://a:x", "http://a\r\nb", "a"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
