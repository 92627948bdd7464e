//! OTLP/HTTP with binary messages.

use super::Failure;
use super::answer::{self, Accepted};
use super::connection::Answer;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Uri};
use std::time::{Duration, SystemTime};

const PROTOBUF: &str = "application/x-protobuf";

/// Returns the request with a message.
pub(super) fn request(uri: &Uri, headers: &HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    // Servers get the path, and the host as a header.
    let path = uri.path_and_query().cloned().map(Uri::from);
    *request.uri_mut() = path.unwrap_or_default();
    let own = request.headers_mut();
    own.extend(headers.clone());
    own.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    let agent = concat!("dioptra/", env!("CARGO_PKG_VERSION"));
    own.insert(USER_AGENT, HeaderValue::from_static(agent));
    let host = uri
        .authority()
        .map(|host| HeaderValue::from_str(host.as_str()));
    if let Some(Ok(host)) = host {
        own.insert(HOST, host);
    }
    request
}

/// Returns the collector's answer.
pub(super) fn accepted(answer: &Answer) -> Result<Accepted, Failure> {
    let is_json = is_of_type(answer, "application/json");
    if answer.status.is_success() {
        let accepted = match is_json {
            true => of_json(&answer.body),
            false => answer::response(&answer.body),
        };
        // The request was taken, whatever the answer is.
        return Ok(accepted.unwrap_or_else(|| Accepted {
            rejected: 0,
            message: "its answer is no ExportProfilesServiceResponse".to_owned(),
        }));
    }
    let mut why = format!("HTTP {}", answer.status);
    let said = match is_of_type(answer, PROTOBUF) {
        true => answer::status_text(&answer.body),
        false => Some(answer::text(&answer.body)),
    };
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        why = format!("{why}: {said}");
    }
    if let Some(location) = answer.headers.get(LOCATION) {
        why = format!("{why}; it points to {}", answer::text(location.as_bytes()));
    }
    match answer.status.as_u16() {
        429 | 502 | 503 | 504 => Err(Failure::Again {
            why,
            after: answer.headers.get(RETRY_AFTER).and_then(delay),
            answered: true,
        }),
        _ => Err(Failure::Never { why }),
    }
}

fn is_of_type(answer: &Answer, wanted: &str) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// Returns the delay that a collector asks for: seconds, or a time of the wall clock.
fn delay(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Reads the answer as JSON, in which some collectors answer. 64-bit numbers may be texts there.
fn of_json(body: &[u8]) -> Option<Accepted> {
    let json: serde_json::Value = serde_json::from_slice(body).ok()?;
    let partial = &json.as_object()?.get("partialSuccess");
    let field = |name: &str| partial.and_then(|partial| partial.get(name));
    let rejected = field("rejectedProfiles").and_then(|number| match number {
        serde_json::Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    });
    let message = field("errorMessage").and_then(|message| message.as_str());
    Some(Accepted {
        rejected: rejected.unwrap_or(0),
        message: message.map_or_else(String::new, |text| answer::text(text.as_bytes())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    fn with(status: u16, kind: &'static str, body: &'static [u8]) -> Answer {
        let mut answer = Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            body: Bytes::from_static(body),
            ..Answer::default()
        };
        answer
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    }

    #[test]
    fn statuses_are_retried_as_the_specification_says() {
        for status in [400, 401, 404, 408, 413, 429, 500, 501, 502, 503, 504, 301] {
            let is_retried = [429, 502, 503, 504].contains(&status);
            match accepted(&with(status, "text/plain; charset=utf-8", b"because")) {
                Err(Failure::Again { why, .. }) => assert!(is_retried, "{why}"),
                Err(Failure::Never { why }) => {
                    assert!(!is_retried && why.ends_with(": because"), "{why}");
                }
                Ok(_) => panic!("{status}"),
            }
        }
    }

    #[test]
    fn delays_are_seconds_or_times() {
        let delay = |text: &'static str| delay(&HeaderValue::from_static(text));
        assert_eq!(delay("120"), Some(Duration::from_secs(120)));
        assert_eq!(delay("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let far = delay("Fri, 31 Dec 9999 23:59:59 GMT").expect("a time");
        assert!(far > Duration::from_secs(1_000_000));
        assert_eq!(delay("-1"), None);
        assert_eq!(delay("soon"), None);
    }

    #[test]
    fn answers_may_be_json() {
        let body = br#"{"partialSuccess":{"rejectedProfiles":"2","errorMessage":"why"}}"#;
        let taken = accepted(&with(200, "application/json", body)).expect("taken");
        assert_eq!((taken.rejected, taken.message.as_str()), (2, "why"));
        let taken = accepted(&with(200, "application/json", b"{}")).expect("taken");
        assert_eq!(taken, Accepted::default());
        let taken = accepted(&with(200, "text/html", b"<html>")).expect("taken");
        assert!(!taken.message.is_empty());
        let status = accepted(&with(400, PROTOBUF, b"\x08\x03\x12\x03bad"));
        let why = "HTTP 400 Bad Request: bad".to_owned();
        assert_eq!(status, Err(Failure::Never { why }));
    }
}
