//! Debug files from debuginfod servers: only when asked for, each once, and never for long.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use self::client::Client;
use crate::cause::DebuginfodCause;
use crate::note::{Hex, Note};

/// The time for which a server's "not found" is believed.
const MISS_HOLDS: Duration = Duration::from_secs(600);

/// Where debug files may be fetched from, and where they are kept.
#[derive(Debug, Clone)]
pub struct Debuginfod {
    servers: Vec<String>,
    cache: PathBuf,
    client: Client,
    /// Servers that did not answer: not asked again. Shared by clones.
    silent: Arc<Mutex<Vec<String>>>,
}

impl Debuginfod {
    /// Servers (`https://host:port/path`), asked in this order; the directory for what was fetched, laid
    /// out as elfutils do; and the longest time to wait for a file. `https` trusts the certificates that
    /// this system trusts.
    #[must_use]
    pub fn new(servers: Vec<String>, cache: PathBuf, timeout: Duration) -> Self {
        Self {
            servers,
            cache,
            client: Client::new(timeout),
            silent: Arc::default(),
        }
    }

    /// As the environment has it: servers from `DEBUGINFOD_URLS`, else as in
    /// [`from_env_with`](Self::from_env_with). `None` without servers, or without a place to keep files.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        Self::from_env_with(&text("DEBUGINFOD_URLS")?)
    }

    /// Servers separated by spaces; the rest as the environment has it: `DEBUGINFOD_CACHE_PATH` (else
    /// below `XDG_CACHE_HOME`, else `~/.cache`) and `DEBUGINFOD_TIMEOUT` in seconds (else 30). `None`
    /// without servers, or without a place to keep files.
    #[must_use]
    pub fn from_env_with(servers: &str) -> Option<Self> {
        let servers: Vec<String> = servers.split_whitespace().map(str::to_owned).collect();
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

    /// Returns whether a server had the file, which then lies at `path`. `Err(None)`: the server failed before.
    fn ask(
        &self,
        server: &str,
        build_id: &[u8],
        path: &Path,
    ) -> Result<bool, Option<DebuginfodCause>> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.iter().any(|silent| silent == server) {
            return Err(None);
        }
        drop(silent);
        if !server.starts_with("http://") && !server.starts_with("https://") {
            return Err(Some(DebuginfodCause::Address));
        }
        let url = format!(
            "{}/buildid/{}/debuginfo",
            server.trim_end_matches('/'),
            Hex(build_id)
        );
        self.client.fetch(&url, path).map_err(Some)
    }
}

/// A variable of the environment; an empty one counts as none.
fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[cfg(feature = "debuginfod")]
mod client {
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use ureq::tls::{RootCerts, TlsConfig};

    use crate::cause::DebuginfodCause;

    /// The longest wait for a connection: longer than any server that works takes to accept one.
    const CONNECT: Duration = Duration::from_secs(5);
    /// The largest debug file that is fetched, in bytes.
    const LARGEST: u64 = 4 << 30;

    /// An HTTP client.
    #[derive(Debug, Clone)]
    pub(super) struct Client(ureq::Agent);

    impl Client {
        /// Returns a client that asks for `timeout` at most for each file. The client reads the system's certificates only when
        /// a server needs them.
        pub fn new(timeout: Duration) -> Self {
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::PlatformVerifier)
                .unversioned_rustls_crypto_provider(Arc::new(
                    rustls::crypto::ring::default_provider(),
                ))
                .build();
            let agent: ureq::Agent = ureq::Agent::config_builder()
                .timeout_resolve(Some(timeout.min(CONNECT)))
                .timeout_connect(Some(timeout.min(CONNECT)))
                .timeout_global(Some(timeout))
                .http_status_as_error(false)
                // Questions are few, and a server may close a connection at any time.
                .max_idle_connections(0)
                .user_agent(concat!("dioptra/", env!("CARGO_PKG_VERSION")))
                .tls_config(tls)
                .build()
                .into();
            Client(agent)
        }

        /// Fetches a file to `path`; false when the server doesn't have it.
        pub fn fetch(&self, url: &str, path: &Path) -> Result<bool, DebuginfodCause> {
            let answer = self.0.get(url).call().map_err(ureq::Error::into_io)?;
            match answer.status().as_u16() {
                200 => {}
                404 => return Ok(false),
                status => return Err(DebuginfodCause::Status(status)),
            }
            let body = answer.into_body();
            let length = body.content_length();
            if length.is_some_and(|length| length > LARGEST) {
                return Err(DebuginfodCause::TooLarge { limit: LARGEST });
            }
            let dir = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(dir)?;
            // Two may fetch the same file: each writes one of its own and puts it in place whole.
            let part = dir.join(format!(
                "debuginfo.{}.{:?}.part",
                std::process::id(),
                std::thread::current().id()
            ));
            let mut reader = body.into_with_config().limit(u64::MAX).reader();
            let result = copy(&mut reader, &part, length);
            let result = result.and_then(|()| Ok(fs::rename(&part, path)?));
            if result.is_err() {
                // An incomplete file is of no use.
                let _ = fs::remove_file(&part);
            }
            result.map(|()| true)
        }
    }

    /// Copies an answer into a file.
    fn copy(
        answer: &mut impl Read,
        part: &Path,
        length: Option<u64>,
    ) -> Result<(), DebuginfodCause> {
        let mut file = File::create(part)?;
        let mut buffer = vec![0; 64 * 1024];
        let mut copied = 0;
        loop {
            let read = answer.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            copied += read as u64;
            if copied > LARGEST {
                return Err(DebuginfodCause::TooLarge { limit: LARGEST });
            }
            file.write_all(&buffer[..read])?;
        }
        if copied == 0 || length.is_some_and(|length| length != copied) {
            return Err(DebuginfodCause::CutShort);
        }
        Ok(())
    }
}

#[cfg(not(feature = "debuginfod"))]
mod client {
    use std::path::Path;
    use std::time::Duration;

    use crate::cause::DebuginfodCause;

    /// A client that fetches nothing: this program was built without the feature `debuginfod`.
    #[derive(Debug, Clone)]
    pub(super) struct Client;

    impl Client {
        pub fn new(_timeout: Duration) -> Self {
            Client
        }

        pub fn fetch(&self, _url: &str, _path: &Path) -> Result<bool, DebuginfodCause> {
            Err(DebuginfodCause::NotBuilt)
        }
    }
}
