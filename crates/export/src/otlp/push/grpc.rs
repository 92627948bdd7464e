//! OTLP/gRPC: one call of the method `Export`, as gRPC's description of its use of HTTP/2 has it.

use super::Failure;
use super::answer::{self, Accepted};
use super::connection::Answer;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, TE, USER_AGENT};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use std::time::Duration;

/// The path of the method.
pub(super) const PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The bytes in front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// gRPC's names of status codes.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The codes that OTLP's specification calls retryable.
const RETRYABLE: [&str; 6] = [
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNAVAILABLE",
    "DATA_LOSS",
];
/// The code that is retryable if the collector says when.
const IF_ASKED_FOR: &str = "RESOURCE_EXHAUSTED";

/// The encoding of binary headers, whose padding some senders leave out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Puts gRPC's prefix in front of a message.
pub(super) fn framed(message: &[u8]) -> Result<Bytes, String> {
    let Ok(length) = u32::try_from(message.len()) else {
        return Err("the request has more than 4 GiB".to_owned());
    };
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    Ok(Bytes::from(framed))
}

/// Returns the request with a message that has its prefix.
pub(super) fn request(
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
    limit: Duration,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    let own = request.headers_mut();
    own.extend(headers.clone());
    let value = |text: &'static str| hyper::header::HeaderValue::from_static(text);
    own.insert(CONTENT_TYPE, value("application/grpc"));
    own.insert(TE, value("trailers"));
    own.insert(
        USER_AGENT,
        value(concat!("dioptra/", env!("CARGO_PKG_VERSION"))),
    );
    // The header has eight digits.
    let milliseconds = limit.as_millis().clamp(1, 99_999_999) as u64;
    if let Ok(timeout) = format!("{milliseconds}m").try_into() {
        own.insert("grpc-timeout", timeout);
    }
    request
}

/// Returns the collector's answer.
pub(super) fn accepted(answer: &Answer) -> Result<Accepted, Failure> {
    // An answer without a message has its status among the headers.
    let in_trailers = answer.trailers.contains_key("grpc-status");
    let fields = if in_trailers {
        &answer.trailers
    } else {
        &answer.headers
    };
    let Some(status) = fields.get("grpc-status") else {
        return Err(without_status(answer));
    };
    let number = status
        .to_str()
        .ok()
        .and_then(|text| text.parse::<usize>().ok());
    let code = number.and_then(|number| CODES.get(number)).copied();
    // Receivers treat codes that they do not know as this one.
    let code = code.unwrap_or("UNKNOWN");
    if code == "OK" {
        return message(&answer.body);
    }
    let details = fields.get("grpc-status-details-bin");
    let details = details.and_then(|details| BASE64.decode(details).ok());
    let after = details.as_deref().and_then(answer::retry_delay);
    let said = fields.get("grpc-message");
    let said = said.map(|said| answer::text(&percent_decoded(said.as_bytes())));
    let why = match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{code}: {said}"),
        None => code.to_owned(),
    };
    let is_retryable = RETRYABLE.contains(&code) || (code == IF_ASKED_FOR && after.is_some());
    match is_retryable {
        true => Err(Failure::Again {
            why,
            after: after.filter(|after| !after.is_zero()),
            answered: true,
        }),
        false => Err(Failure::Never { why }),
    }
}

/// Returns the failure of an answer that is not gRPC's, as from a proxy.
fn without_status(answer: &Answer) -> Failure {
    let status = answer.status;
    if status == StatusCode::OK {
        return Failure::Never {
            why: "its answer has no grpc-status".to_owned(),
        };
    }
    let why = format!("HTTP {status}, and no grpc-status");
    match status.as_u16() {
        429 | 502 | 503 | 504 => Failure::Again {
            why,
            after: None,
            answered: false,
        },
        _ => Failure::Never { why },
    }
}

/// Reads the message of a call that succeeded. The request was taken, whatever the message is.
fn message(body: &[u8]) -> Result<Accepted, Failure> {
    let message = match body {
        [0, a, b, c, d, message @ ..]
            if message.len() == u32::from_be_bytes([*a, *b, *c, *d]) as usize =>
        {
            answer::response(message)
        }
        _ => None,
    };
    Ok(message.unwrap_or_else(|| Accepted {
        rejected: 0,
        message: "its answer is no ExportProfilesServiceResponse".to_owned(),
    }))
}

/// Decodes the text of a header. `%` with two hexadecimal digits stands for a byte.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| {
        let byte = text.get(at).copied()?;
        char::from(byte).to_digit(16)
    };
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(status: Option<&str>, message: &str, body: &'static [u8]) -> Answer {
        let mut answer = Answer {
            body: Bytes::from_static(body),
            ..Answer::default()
        };
        if let Some(status) = status {
            answer
                .trailers
                .insert("grpc-status", status.parse().expect("a value"));
            answer
                .trailers
                .insert("grpc-message", message.parse().expect("a value"));
        }
        answer
    }

    #[test]
    fn codes_are_retried_as_the_specification_says() {
        // The specification's table, by gRPC's numbers.
        let retryable = [1, 4, 10, 11, 14, 15];
        for code in 1..=17 {
            let answer = with(Some(&code.to_string()), "because", b"");
            match accepted(&answer) {
                Err(Failure::Again { why, .. }) => {
                    assert!(retryable.contains(&code), "{code}: {why}");
                }
                Err(Failure::Never { why }) => {
                    assert!(!retryable.contains(&code), "{code}: {why}");
                    assert!(why.ends_with(": because"), "{why}");
                }
                Ok(_) => panic!("{code}"),
            }
        }
    }

    #[test]
    fn exhausted_collectors_are_asked_again_if_they_say_when() {
        let mut answer = with(Some("8"), "", b"");
        assert!(matches!(accepted(&answer), Err(Failure::Never { .. })));
        // A status with a RetryInfo of one second, without padding.
        let details =
            b"\x1a\x30\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x01";
        let encoded = BASE64.encode(details);
        let encoded = encoded.trim_end_matches('=').parse().expect("a value");
        answer.trailers.insert("grpc-status-details-bin", encoded);
        let expected = Failure::Again {
            why: "RESOURCE_EXHAUSTED".to_owned(),
            after: Some(Duration::from_secs(1)),
            answered: true,
        };
        assert_eq!(accepted(&answer), Err(expected));
    }

    #[test]
    fn answers_that_are_not_grpc_s_are_failures() {
        assert!(matches!(
            accepted(&with(None, "", b"")),
            Err(Failure::Never { .. })
        ));
        let mut answer = with(None, "", b"<html>");
        answer.status = StatusCode::BAD_GATEWAY;
        assert!(matches!(accepted(&answer), Err(Failure::Again { .. })));
        for body in [&b""[..], b"\x01\0\0\0\0", b"\0\0\0\0\x05ab"] {
            let said = accepted(&with(Some("0"), "", body)).expect("taken");
            assert!(!said.message.is_empty());
        }
        let taken = accepted(&with(Some("0"), "", b"\0\0\0\0\0"));
        assert_eq!(taken, Ok(Accepted::default()));
    }

    #[test]
    fn texts_are_decoded() {
        assert_eq!(percent_decoded(b"a%20b%"), b"a b%");
        assert_eq!(percent_decoded(b"%e2%82%ac%zz"), "€%zz".as_bytes());
    }
}
