//! A connection to a collector.

use super::{Endpoint, Failure, Protocol, chain};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The most bytes of an answer.
const ANSWER_LIMIT: usize = 1 << 20;

/// An open connection, which sends one request after another.
pub(super) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A complete answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

/// Prepares encryption, with the system's certificates.
pub(super) fn tls(protocol: Protocol) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| chain(&error))?
        .with_no_client_auth();
    config.alpn_protocols = vec![match protocol {
        Protocol::Grpc => b"h2".to_vec(),
        Protocol::Http => b"http/1.1".to_vec(),
    }];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn again(why: String) -> Failure {
    Failure::Again {
        why,
        after: None,
        answered: false,
    }
}

impl Connection {
    /// Connects.
    pub(super) async fn open(
        endpoint: &Endpoint,
        tls: Option<&TlsConnector>,
    ) -> Result<Connection, Failure> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
        let stream = stream.map_err(|error| again(format!("connecting: {}", chain(&error))))?;
        // Without it, the last bytes of a request may wait. The connection works without it, too.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return Connection::over(stream, endpoint.protocol).await;
        };
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|_| Failure::Never {
            why: "the host is neither a name nor an address".to_owned(),
        })?;
        match tls.connect(name, stream).await {
            Ok(stream) => Connection::over(stream, endpoint.protocol).await,
            Err(error) => {
                let why = format!("encrypting: {}", chain(&error));
                // A wrong certificate stays wrong, while a closed connection may be opened later.
                let inner = error.get_ref();
                match inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
                    true => Err(Failure::Never { why }),
                    false => Err(again(why)),
                }
            }
        }
    }

    async fn over<S>(stream: S, protocol: Protocol) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let failed = |error: hyper::Error| again(format!("connecting: {}", chain(&error)));
        let io = TokioIo::new(stream);
        match protocol {
            Protocol::Http => {
                let (sender, driver) = http1::handshake(io).await.map_err(failed)?;
                // Errors of the connection reach the request, too.
                tokio::spawn(driver);
                Ok(Connection::Http1(sender))
            }
            Protocol::Grpc => {
                let handshake = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, driver) = handshake.map_err(failed)?;
                tokio::spawn(driver);
                Ok(Connection::Http2(sender))
            }
        }
    }

    /// Returns whether the other end is not known to have closed the connection.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Connection::Http1(sender) => !sender.is_closed(),
            Connection::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request, and waits for the whole answer.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let sent = async {
            match self {
                Connection::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Connection::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        match sent.await {
            Ok(response) => whole(response).await,
            // An answer in another protocol.
            Err(error) if error.is_parse() => Err(Failure::Never {
                why: format!("its answer is not HTTP/1.1: {}", chain(&error)),
            }),
            Err(error) => Err(again(chain(&error))),
        }
    }
}

/// Reads the whole answer.
async fn whole(response: Response<Incoming>) -> Result<Answer, Failure> {
    let (head, body) = response.into_parts();
    let collected = Limited::new(body, ANSWER_LIMIT).collect().await;
    let collected = collected.map_err(|error| match error.is::<LengthLimitError>() {
        true => Failure::Never {
            why: format!("its answer has more than {ANSWER_LIMIT} bytes"),
        },
        false => again(format!("reading the answer: {}", chain(&*error))),
    })?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        body: collected.to_bytes(),
    })
}
