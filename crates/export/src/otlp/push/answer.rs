//! The messages of answers.

use crate::wire::{Value, Wire};
use dioptra_tables::escape;
use std::time::Duration;

/// The most characters of a collector's text that are shown.
const MOST_CHARACTERS: usize = 400;

/// A collector's answer to a request that it took, or took a part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The number of profiles that the collector refused.
    pub rejected: u64,
    /// The collector's remark; empty if there is none.
    pub message: String,
}

/// Returns a collector's text, shortened and without control characters.
pub(super) fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut characters = text.trim().chars();
    let mut shown: String = characters.by_ref().take(MOST_CHARACTERS).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    escape(&shown)
}

/// Calls `visit` with each field; `None` if the bytes are no message.
fn fields<'a>(bytes: &'a [u8], mut visit: impl FnMut(u64, Value<'a>)) -> Option<()> {
    let mut wire = Wire::new(bytes);
    while let Some((field, value)) = wire.field().ok()? {
        visit(field, value);
    }
    Some(())
}

/// Returns the last message or text in a field; `None` if the bytes are no message.
fn inner(bytes: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut found: &[u8] = &[];
    fields(bytes, |field, value| {
        if let (true, Value::Bytes(inner)) = (field == wanted, value) {
            found = inner.bytes;
        }
    })?;
    Some(found)
}

/// Reads an `ExportProfilesServiceResponse`; `None` if the bytes are none.
pub(super) fn response(bytes: &[u8]) -> Option<Accepted> {
    let mut accepted = Accepted::default();
    fields(inner(bytes, 1)?, |field, value| match (field, value) {
        // No collector rejects a negative number.
        (1, Value::Number(rejected)) => accepted.rejected = rejected.min(i64::MAX.unsigned_abs()),
        (2, Value::Bytes(message)) => accepted.message = text(message.bytes),
        _ => {}
    })?;
    Some(accepted)
}

/// Reads the text of a `google.rpc.Status`.
pub(super) fn status_text(bytes: &[u8]) -> Option<String> {
    inner(bytes, 2).map(text)
}

/// Reads the delay of the `google.rpc.RetryInfo` in the details of a `google.rpc.Status`.
pub(super) fn retry_delay(bytes: &[u8]) -> Option<Duration> {
    let mut delay = None;
    fields(bytes, |field, value| {
        if let (3, Value::Bytes(detail)) = (field, value) {
            delay = delay.or(of_detail(detail.bytes));
        }
    })?;
    delay
}

/// Reads a `google.protobuf.Any` with a `RetryInfo`.
fn of_detail(bytes: &[u8]) -> Option<Duration> {
    if !inner(bytes, 1)?.ends_with(b"/google.rpc.RetryInfo") {
        return None;
    }
    let duration = inner(inner(bytes, 2)?, 1)?;
    let (mut seconds, mut nanoseconds) = (0, 0);
    fields(duration, |field, value| match (field, value) {
        (1, Value::Number(number)) => seconds = number,
        (2, Value::Number(number)) => nanoseconds = number,
        _ => {}
    })?;
    // Negative numbers are large ones here.
    let seconds = u64::try_from(seconds.cast_signed()).ok()?;
    let nanoseconds = u32::try_from(nanoseconds).ok()?;
    (nanoseconds < 1_000_000_000).then(|| Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::Message;

    fn retry_info(url: &str, seconds: i64, nanoseconds: i64) -> Vec<u8> {
        let [mut duration, mut info, mut any, mut status] = [(); 4].map(|()| Message::default());
        duration.signed(1, seconds);
        duration.signed(2, nanoseconds);
        info.message(1, &duration);
        any.text(1, url.as_bytes());
        any.message(2, &info);
        status.number(1, 14);
        status.text(2, b"busy\x1b[2J");
        status.message(3, &any);
        status.into_bytes()
    }

    #[test]
    fn delays_and_texts_are_read() {
        let url = "type.googleapis.com/google.rpc.RetryInfo";
        let status = retry_info(url, 2, 500_000_000);
        assert_eq!(retry_delay(&status), Some(Duration::from_millis(2500)));
        let said = status_text(&status).expect("a text");
        assert!(said.starts_with("busy") && !said.contains('\x1b'), "{said}");
        for status in [
            retry_info(url, -1, 0),
            retry_info(url, 0, -1),
            retry_info("type.googleapis.com/google.rpc.Help", 2, 0),
            Vec::new(),
            vec![0xff; 20],
        ] {
            assert_eq!(retry_delay(&status), None);
        }
    }

    #[test]
    fn partial_success_is_read() {
        assert_eq!(response(b""), Some(Accepted::default()));
        let [mut partial, mut message] = [(); 2].map(|()| Message::default());
        partial.number(1, 3);
        partial.text(2, "x".repeat(1000).as_bytes());
        message.message(1, &partial);
        let accepted = response(message.bytes()).expect("an answer");
        assert_eq!(accepted.rejected, 3);
        assert_eq!(accepted.message.chars().count(), MOST_CHARACTERS + 1);
        assert_eq!(response(b"<html>"), None);
        assert_eq!(response(&message.bytes()[..50]), None);
    }
}
