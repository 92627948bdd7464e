//! Sending of requests to an OpenTelemetry collector, by gRPC or HTTP.
//!
//! [`Collector::send`] sends one request and waits for its answer, so that never more than one is in memory or under
//! way: a slow collector slows the sender down. What the protocol calls retryable is sent again, later each time, and as
//! late as the collector asks for.
//!
//! A request is a call of one method with one message each way, so no gRPC library is needed: `hyper` speaks HTTP/2, and
//! [`grpc`] adds five bytes in front of the message and reads the status behind it.

mod answer;
mod backoff;
mod connection;
mod grpc;
mod http;

pub use answer::Accepted;

use backoff::Backoff;
use connection::Connection;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{HeaderMap, Uri};
use std::io;
use std::time::{Duration, Instant};

/// The most tries of a request.
const MOST_TRIES: u32 = 50;

/// The path of the specification for profiles over HTTP.
const HTTP_PATH: &str = "/v1development/profiles";

/// The way in which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC, usually at port 4317.
    Grpc,
    /// OTLP/HTTP with binary messages, usually at port 4318.
    Http,
}

/// A collector, and how it is addressed.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// `http://` or `https://`, a host, a port, and for HTTP a path.
    pub url: String,
    /// The protocol; if `None`, a URL with a path or with port 4318 is HTTP's, and any other is gRPC's.
    pub protocol: Option<Protocol>,
    /// Names and values of headers, such as those of an authentication.
    pub headers: Vec<(String, String)>,
    /// The time for which a request is tried again; zero stands for a single try.
    pub patience: Duration,
    /// The longest time that a try waits for the connection, and then for the answer.
    pub try_limit: Duration,
}

/// A reason to wait before the next try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The reason why the last try failed.
    pub why: String,
    /// The number of tries so far.
    pub tries: u32,
    /// The time until the next one.
    pub wait: Duration,
}

/// The reason why a request was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The URL names no collector.
    #[error("{url}: {why}")]
    Url {
        /// The URL.
        url: String,
        /// The reason.
        why: &'static str,
    },
    /// The header cannot be sent. Its value may be secret, and is not shown.
    #[error("the header `{name}`: {why}")]
    Header {
        /// The header's name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// Nothing can be sent at all.
    #[error("preparing to send: {0}")]
    Prepare(String),
    /// The collector refused the request, and would refuse it again.
    #[error("{url} refuses the request: {why}")]
    Refused {
        /// The collector.
        url: String,
        /// The collector's reason.
        why: String,
    },
    /// The request was tried as often and as long as allowed.
    #[error(
        "{url} did not take the request in {tries} {} and {:.1} s: {why}",
        if *tries == 1 { "try" } else { "tries" },
        elapsed.as_secs_f64()
    )]
    GaveUp {
        /// The collector.
        url: String,
        /// The number of tries.
        tries: u32,
        /// The time since the first one began.
        elapsed: Duration,
        /// The reason why the last try failed.
        why: String,
        /// Whether the collector ever answered in the protocol.
        answered: bool,
    },
}

/// The outcome of a try that failed.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// The request may succeed later, not before `after`.
    Again {
        why: String,
        after: Option<Duration>,
        answered: bool,
    },
    /// The request would fail again.
    Never { why: String },
}

/// The place of a collector.
#[derive(Clone, Debug)]
struct Endpoint {
    /// The whole URL of requests.
    uri: Uri,
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    protocol: Protocol,
}

impl Endpoint {
    fn of(options: &PushOptions) -> Result<Endpoint, PushError> {
        let error = |why| PushError::Url {
            url: options.url.clone(),
            why,
        };
        let uri: Uri = options.url.parse().map_err(|_| error("is no URL"))?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(error("a collector's URL begins with http:// or https://")),
        };
        let authority = uri.authority().ok_or(error("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(error(
                "has a user's name; a header `authorization` takes its place",
            ));
        }
        let host = authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(error("has no host"));
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() != authority.host() => {
                return Err(error("has a port that is none"));
            }
            None if is_tls => 443,
            None => 80,
        };
        let has_path = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        let protocol = options.protocol.unwrap_or(match has_path || port == 4318 {
            true => Protocol::Http,
            false => Protocol::Grpc,
        });
        let path = match protocol {
            Protocol::Grpc if has_path => {
                return Err(error("gRPC's methods have no place for a path"));
            }
            Protocol::Grpc => grpc::PATH,
            Protocol::Http if has_path => uri.path_and_query().map_or("/", |path| path.as_str()),
            Protocol::Http => HTTP_PATH,
        };
        let whole = Uri::builder()
            .scheme(if is_tls { Scheme::HTTPS } else { Scheme::HTTP })
            .authority(authority.clone())
            .path_and_query(path)
            .build()
            .map_err(|_| error("is no URL"))?;
        Ok(Endpoint {
            host: host.to_owned(),
            uri: whole,
            is_tls,
            port,
            protocol,
        })
    }
}

fn headers(options: &PushOptions) -> Result<HeaderMap, PushError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let error = |why| PushError::Header {
            name: name.clone(),
            why,
        };
        let key =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| error("is no header's name"))?;
        if ["content-type", "content-length", "te", "host"].contains(&key.as_str()) {
            return Err(error("belongs to the protocol"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| error("its value has characters that a header cannot hold"))?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

/// A collector that takes requests.
pub struct Collector {
    endpoint: Endpoint,
    headers: HeaderMap,
    patience: Duration,
    try_limit: Duration,
    runtime: tokio::runtime::Runtime,
    tls: Option<tokio_rustls::TlsConnector>,
    connection: Option<Connection>,
    /// Whether it ever answered in the protocol.
    answered: bool,
}

impl Collector {
    /// Prepares to send. The first request connects.
    ///
    /// # Errors
    /// The URL or a header is wrong, or the system has no certificates.
    pub fn new(options: &PushOptions) -> Result<Collector, PushError> {
        let endpoint = Endpoint::of(options)?;
        let headers = headers(options)?;
        let prepare = |error: io::Error| PushError::Prepare(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(prepare)?;
        let tls = match endpoint.is_tls {
            true => Some(connection::tls(endpoint.protocol).map_err(PushError::Prepare)?),
            false => None,
        };
        Ok(Collector {
            endpoint,
            headers,
            patience: options.patience,
            try_limit: options.try_limit,
            runtime,
            tls,
            connection: None,
            answered: false,
        })
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        self.endpoint.protocol
    }

    /// Returns the URL of requests.
    pub fn url(&self) -> String {
        self.endpoint.uri.to_string()
    }

    /// Sends an encoded `ExportProfilesServiceRequest`, and waits for its answer. `waiting` is called before each wait for
    /// another try.
    ///
    /// A collector whose answer is lost gets the same request again.
    ///
    /// # Errors
    /// The collector refused the request, or took it in none of the tries.
    pub fn send(
        &mut self,
        body: Vec<u8>,
        waiting: &mut dyn FnMut(&Waiting),
    ) -> Result<Accepted, PushError> {
        let body = match self.endpoint.protocol {
            Protocol::Grpc => grpc::framed(&body).map_err(|why| self.refused(why))?,
            Protocol::Http => Bytes::from(body),
        };
        let begun = Instant::now();
        let mut backoff = Backoff::default();
        let mut tries = 0;
        loop {
            tries += 1;
            let (why, after) = match self.once(&body) {
                Ok(accepted) => return Ok(accepted),
                Err(Failure::Never { why }) => return Err(self.refused(why)),
                Err(Failure::Again {
                    why,
                    after,
                    answered,
                }) => {
                    self.answered |= answered;
                    (why, after)
                }
            };
            let wait = backoff.next(after);
            let elapsed = begun.elapsed();
            if tries >= MOST_TRIES || elapsed.saturating_add(wait) > self.patience {
                let why = match after.filter(|after| elapsed.saturating_add(*after) > self.patience)
                {
                    Some(after) => format!("{why}; it asks to wait {:.1} s", after.as_secs_f64()),
                    None => why,
                };
                return Err(PushError::GaveUp {
                    url: self.url(),
                    tries,
                    elapsed,
                    why,
                    answered: self.answered,
                });
            }
            waiting(&Waiting { why, tries, wait });
            // The connection's task goes on meanwhile.
            self.runtime
                .block_on(async { tokio::time::sleep(wait).await });
        }
    }

    fn refused(&self, why: String) -> PushError {
        PushError::Refused {
            url: self.url(),
            why,
        }
    }

    /// Sends the request once.
    fn once(&mut self, body: &Bytes) -> Result<Accepted, Failure> {
        let Collector {
            endpoint,
            headers,
            try_limit,
            runtime,
            tls,
            connection,
            ..
        } = self;
        let limit = *try_limit;
        let outcome = runtime.block_on(async {
            let mut open = match connection.take().filter(Connection::is_open) {
                Some(open) => open,
                None => {
                    let opening = Connection::open(endpoint, tls.as_ref());
                    match tokio::time::timeout(limit, opening).await {
                        Ok(opened) => opened?,
                        Err(_) => return Err(unanswered("no connection", limit)),
                    }
                }
            };
            let request = match endpoint.protocol {
                Protocol::Grpc => grpc::request(&endpoint.uri, headers, body.clone(), limit),
                Protocol::Http => http::request(&endpoint.uri, headers, body.clone()),
            };
            let answer = match tokio::time::timeout(limit, open.send(request)).await {
                Ok(answer) => answer?,
                // The connection is dropped, and with it a late answer.
                Err(_) => return Err(unanswered("no answer", limit)),
            };
            *connection = Some(open);
            match endpoint.protocol {
                Protocol::Grpc => grpc::accepted(&answer),
                Protocol::Http => http::accepted(&answer),
            }
        });
        self.answered |= outcome.is_ok();
        outcome
    }
}

fn unanswered(what: &str, limit: Duration) -> Failure {
    Failure::Again {
        why: format!("{what} within {:.1} s", limit.as_secs_f64()),
        after: None,
        answered: false,
    }
}

/// Returns an error and its causes as one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Wrappers repeat the text of their cause.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, protocol: Option<Protocol>) -> Result<Endpoint, PushError> {
        Endpoint::of(&PushOptions {
            url: url.to_owned(),
            protocol,
            headers: Vec::new(),
            patience: Duration::ZERO,
            try_limit: Duration::from_secs(1),
        })
    }

    #[test]
    fn the_url_says_the_protocol() {
        let of = |url: &str| {
            let endpoint = endpoint(url, None).expect("a URL");
            (endpoint.protocol, endpoint.uri.to_string())
        };
        let grpc = "opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
        for (url, protocol, whole) in [
            (
                "http://127.0.0.1:4317",
                Protocol::Grpc,
                format!("http://127.0.0.1:4317/{grpc}"),
            ),
            (
                "https://host/",
                Protocol::Grpc,
                format!("https://host/{grpc}"),
            ),
            (
                "http://[::1]:4318",
                Protocol::Http,
                "http://[::1]:4318/v1development/profiles".to_owned(),
            ),
            (
                "https://host:4317/api/me/v1/profiles?x=1",
                Protocol::Http,
                "https://host:4317/api/me/v1/profiles?x=1".to_owned(),
            ),
        ] {
            assert_eq!(of(url), (protocol, whole), "{url}");
        }
        let chosen = endpoint("http://host", Some(Protocol::Http)).expect("a URL");
        assert_eq!((chosen.port, chosen.is_tls), (80, false));
        assert_eq!(chosen.uri, "http://host/v1development/profiles");
        assert_eq!(endpoint("http://[::1]:1", None).expect("a URL").host, "::1");
    }

    #[test]
    fn wrong_urls_and_headers_are_errors() {
        for url in [
            "",
            "host:4317",
            "127.0.0.1:4317",
            "grpc://host:4317",
            "http://",
            "http://:4317",
            "http://user@host:4317",
            "http://host:99999",
            "a b",
        ] {
            assert!(endpoint(url, None).is_err(), "{url}");
        }
        assert!(endpoint("http://host/path", Some(Protocol::Grpc)).is_err());
        for (name, value) in [("a b", "x"), ("te", "x"), ("x", "line\nline")] {
            let options = PushOptions {
                url: "http://host:1".to_owned(),
                protocol: None,
                headers: vec![(name.to_owned(), value.to_owned())],
                patience: Duration::ZERO,
                try_limit: Duration::from_secs(1),
            };
            let said = headers(&options).expect_err("a wrong header").to_string();
            assert!(said.contains(name) && !said.contains("line\n"), "{said}");
        }
    }
}
