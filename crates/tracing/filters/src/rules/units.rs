//! Numbers with units: times, sizes, shares; and yes or no.

use core::fmt;

/// The reason why a text is no number of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitError {
    /// The text does not begin with a number.
    NoNumber,
    /// The text behind the number is no unit.
    Unit,
    /// The number does not fit 64 bits.
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "a number is missing",
            Self::Unit => "the unit is unknown",
            Self::TooLarge => "the number is too large",
        })
    }
}

impl core::error::Error for UnitError {}

/// The description of a time's notation.
pub(crate) const TIME_FORM: &str =
    "a time is a number with ns, us, ms, s, m or h, such as 1500us or 1.5ms; plain numbers are ns";
/// The description of a size's notation.
pub(crate) const SIZE_FORM: &str =
    "a size is a number of bytes, also with k, m or g (powers of 1024)";

/// Parses a time in nanoseconds: `10us`, `1.5ms`, `2 s`; without a unit, nanoseconds. Rounds up, so that no short
/// call slips through.
///
/// # Errors
/// [`UnitError`] for a text that is no time.
pub fn parse_time(text: &str) -> Result<u64, UnitError> {
    scaled(text, |unit| {
        Some(match unit {
            "" | "ns" | "nsec" => 1,
            "us" | "usec" | "µs" => 1_000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" | "hour" => 3_600_000_000_000,
            _ => return None,
        })
    })
}

/// Parses a size in bytes: `100`, `4k`, `1.5m`.
///
/// # Errors
/// [`UnitError`] for a text that is no size.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    scaled(text, |unit| {
        Some(match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return None,
        })
    })
}

/// Parses `true`, `yes`, `on`, `y`, `1` or `false`, `no`, `off`, `n`, `0`, in any case; `None` for other words.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "1" => Some(true),
        "false" | "no" | "off" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a share from 0 to 1, such as a budget for overhead: `1%`, `0.5 %` or `0.01`; `None` for other texts.
#[must_use]
pub fn parse_share(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let decimal = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let share = number.parse::<f64>().ok().filter(|_| decimal)? / scale;
    (0.0..=1.0).contains(&share).then_some(share)
}

/// Returns a decimal number times its unit, exact and rounded up.
fn scaled(text: &str, unit: impl FnOnce(&str) -> Option<u64>) -> Result<u64, UnitError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(UnitError::NoNumber);
    }
    let scale = u128::from(unit(rest.trim_start()).ok_or(UnitError::Unit)?);
    let digits = |digits: &str| match digits.trim_start_matches('0') {
        "" => Ok(0_u128),
        digits => digits.parse().map_err(|_| UnitError::TooLarge),
    };
    // More than 18 decimals are beyond any unit; one that is not 0 rounds up all the same.
    let kept = fraction.get(..18).unwrap_or(fraction);
    let beyond = fraction[kept.len()..].bytes().any(|digit| digit != b'0');
    let denominator = 10_u128.pow(kept.len() as u32);
    let whole = digits(whole)?
        .checked_mul(scale)
        .ok_or(UnitError::TooLarge)?;
    let part = (digits(kept)? * scale + u128::from(beyond)).div_ceil(denominator);
    let sum = whole.checked_add(part).ok_or(UnitError::TooLarge)?;
    u64::try_from(sum).map_err(|_| UnitError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_any_number_of_digits() {
        for (text, expected) in [
            ("1500us", Ok(1_500_000)),
            ("1.5ms", Ok(1_500_000)),
            ("10", Ok(10)),
            ("2 sec", Ok(2_000_000_000)),
            ("1m", Ok(60_000_000_000)),
            (".5us", Ok(500)),
            ("1.0001us", Ok(1_001)),
            ("0.0000000000000000000001s", Ok(1)),
            ("0", Ok(0)),
            ("5 parsecs", Err(UnitError::Unit)),
            ("us", Err(UnitError::NoNumber)),
            ("-1us", Err(UnitError::NoNumber)),
            ("1..2us", Err(UnitError::NoNumber)),
            ("", Err(UnitError::NoNumber)),
            ("99999999999999h", Err(UnitError::TooLarge)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(UnitError::TooLarge)),
            (
                "340282366920938463463374607431768211456",
                Err(UnitError::TooLarge),
            ),
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1.5K"), Ok(1536));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        assert_eq!(parse_size("7x"), Err(UnitError::Unit));
    }

    #[test]
    fn shares_are_percent_or_fractions() {
        for (text, expected) in [
            ("1%", Some(0.01)),
            ("0.5 %", Some(0.005)),
            ("0.01", Some(0.01)),
            ("100%", Some(1.0)),
            ("101%", None),
            ("-1%", None),
            ("nan", None),
            ("inf%", None),
            ("%", None),
        ] {
            assert_eq!(parse_share(text), expected, "{text}");
        }
    }

    #[test]
    fn words_for_yes_and_no() {
        for word in ["true", "YES", "on", "y", "1"] {
            assert_eq!(parse_bool(word), Some(true));
        }
        for word in ["False", "no", "off", "n", "0"] {
            assert_eq!(parse_bool(word), Some(false));
        }
        assert_eq!(parse_bool("maybe"), None);
    }
}
