//! The sub-commands, a file each.

pub mod add;
pub mod compact;
pub mod gc;
pub mod list;
#[cfg(feature = "query")]
pub mod query;
pub mod verify;

use dioptra_store::{Store, StoreError};
use std::time::Duration;

/// The store of a command.
#[derive(clap::Args)]
pub struct NamedStore {
    /// The store: a folder, or s3://BUCKET/PATH
    #[arg(long, value_name = "STORE")]
    store: String,
    #[command(flatten)]
    patience: Patience,
}

impl NamedStore {
    /// Opens the store.
    pub fn open(&self) -> Result<Store, StoreError> {
        Store::open_within(&self.store, self.patience.timeout)
    }
}

/// The longest waits.
#[derive(clap::Args)]
pub struct Patience {
    /// The longest time in which the server of a bucket must answer a request
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration, global = true)]
    pub timeout: Duration,
}

/// Parses a time such as `7d`, `12h`, `30m` or `10s`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time such as 7d, 12h, 30m or 10s");
    let split = text
        .find(|digit: char| !digit.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "d" => 86_400,
        "h" => 3600,
        "m" => 60,
        "s" => 1,
        _ => return Err(wrong()),
    };
    let seconds = number.checked_mul(seconds).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

/// Parses a number of bytes such as `500M` or `8G`.
#[cfg(feature = "query")]
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size such as 500M or 8G");
    let split = text
        .find(|digit: char| !digit.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let bytes: u64 = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err(wrong()),
    };
    match number.checked_mul(bytes) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(wrong()),
    }
}

/// Returns a number of bytes for people.
fn bytes(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// Returns a number and its unit.
fn count(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for wrong in [
            "",
            "7",
            "d",
            "-1d",
            "1w",
            "99999999999999999999d",
            "18446744073709551615d",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "query")]
    #[test]
    fn sizes_have_units() {
        assert_eq!(size("8G"), Ok(8_589_934_592));
        assert_eq!(size("500M"), Ok(524_288_000));
        for wrong in ["", "8", "0M", "M", "-1M", "1T", "1.5G", "99999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
