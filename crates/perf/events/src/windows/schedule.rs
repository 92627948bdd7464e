//! The schedule of windows, and how it is typed.

use std::fmt;
use thiserror::Error;

/// A length: time, or a count of the leader's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Length {
    /// Nanoseconds.
    Time(u64),
    /// Events of the leader: cycles, faults.
    Count(u64),
}

impl Length {
    /// The number without its unit.
    pub fn number(self) -> u64 {
        match self {
            Length::Time(number) | Length::Count(number) => number,
        }
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.number() == 0
    }

    /// Reads `300`, `300ns`, `50us`, `1ms` or `2s`; a unit makes it a time. A fraction is allowed with a unit above
    /// nanoseconds.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str) -> Result<Length, &'static str> {
        const WRONG: &str = "not a length";
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let scale: u64 = match unit {
            "" => return digits.parse().map(Length::Count).map_err(|_| WRONG),
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err("an unknown unit"),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let whole: u64 = whole.parse().map_err(|_| WRONG)?;
        let mut nanoseconds = whole.checked_mul(scale).ok_or("too long")?;
        let mut unit = scale;
        if digits.ends_with('.') {
            return Err(WRONG);
        }
        for digit in fraction.bytes() {
            unit /= 10;
            if !digit.is_ascii_digit() {
                return Err(WRONG);
            }
            if unit == 0 {
                return Err("finer than a nanosecond");
            }
            let more = u64::from(digit - b'0') * unit;
            nanoseconds = nanoseconds.checked_add(more).ok_or("too long")?;
        }
        Ok(Length::Time(nanoseconds))
    }
}

impl fmt::Display for Length {
    /// As [`Length::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Length::Count(number) => write!(f, "{number}"),
            Length::Time(0) => f.write_str("0ns"),
            Length::Time(time) => {
                let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
                let (unit, scale) = units
                    .into_iter()
                    .find(|(_, scale)| time % scale == 0)
                    .unwrap_or(("ns", 1));
                write!(f, "{}{unit}", time / scale)
            }
        }
    }
}

/// A schedule of samples: `[period_long, period_short, period_jitter, batch_count]`, as in `L SSSS L SSSS …`.
///
/// With `long` zero it is ordinary sampling with the period `short`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// From one burst to the next; zero for no bursts.
    pub long: Length,
    /// The length of a window.
    pub short: Length,
    /// The most by which `long` and `short` are drawn longer or shorter, uniformly; zero keeps them as they are. A length
    /// whose unit is not the jitter's is varied by the same share as the other one.
    pub jitter: Length,
    /// Windows of a burst.
    pub batch: u32,
}

impl Schedule {
    /// Samples with one period throughout.
    pub fn steady(period: Length) -> Schedule {
        Schedule {
            long: Length::Count(0),
            short: period,
            jitter: Length::Count(0),
            batch: 1,
        }
    }

    /// Whether there are no bursts.
    pub fn is_steady(&self) -> bool {
        self.long.is_zero()
    }

    /// Returns the jitter of `length`, one of the two, in its own unit.
    pub fn jitter_of(&self, length: Length) -> u64 {
        let jitter = self.jitter.number();
        if std::mem::discriminant(&length) == std::mem::discriminant(&self.jitter) {
            return jitter;
        }
        let other = if length == self.short {
            self.long
        } else {
            self.short
        };
        let share = u128::from(length.number()) * u128::from(jitter);
        let share = share / u128::from(other.number().max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// `[long, short, jitter, batch]`.
    pub fn numbers(&self) -> [u64; 4] {
        [
            self.long.number(),
            self.short.number(),
            self.jitter.number(),
            u64::from(self.batch),
        ]
    }
}

impl fmt::Display for Schedule {
    /// As [`WindowRequest::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule {
            long,
            short,
            jitter,
            batch,
        } = self;
        write!(f, "long={long},short={short},jitter={jitter},batch={batch}")
    }
}

/// A user's request for windows. The recorder chooses fields that are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowRequest {
    /// [`Schedule::long`].
    pub long: Option<Length>,
    /// [`Schedule::short`].
    pub short: Option<Length>,
    /// [`Schedule::jitter`].
    pub jitter: Option<Length>,
    /// [`Schedule::batch`].
    pub batch: Option<u32>,
    /// The number of windows at a burst's start that the analysis leaves out.
    pub warm_up: Option<u32>,
    /// The name of the source that is to be used, whatever the probe finds.
    pub source: Option<String>,
}

/// Text that asks for no windows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("column {column} of `{text}`: {what}; {remedy}")]
#[non_exhaustive]
pub struct WindowSyntaxError {
    /// Where the fault is: the first character is column 1.
    pub column: usize,
    /// The whole text.
    pub text: String,
    /// The fault.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
}

/// The shortest time from one burst of a CPU to the next that is kept, in nanoseconds. Finding a thread and arming its
/// events takes some 10 µs, and the thread that does so has to leave its CPU to others in between.
pub const SHORTEST_LONG: u64 = 100_000;

/// The shortest time from one pair of samples of two clocks (the source `twin`) to the next, in nanoseconds. Both samples
/// interrupt the program itself, and each may take some 60 µs on a loaded virtual machine: more pairs would leave the
/// program no time.
pub const SHORTEST_LONG_OF_TWINS: u64 = 1_000_000;

/// The most windows of a burst: more would be steady sampling.
const MOST_WINDOWS: u32 = 1000;

impl WindowRequest {
    /// Reads `long=1ms,short=300,jitter=20,batch=4,warmup=1,source=refresh`: any of these, in any order, once each.
    ///
    /// # Errors
    /// [`WindowSyntaxError`], which points at the column.
    pub fn parse(text: &str) -> Result<WindowRequest, WindowSyntaxError> {
        let mut request = WindowRequest::default();
        let mut at = 0;
        for item in text.split(',') {
            request
                .take(item)
                .map_err(|(offset, what, remedy)| WindowSyntaxError {
                    column: text
                        .get(..at + offset)
                        .map_or(0, |before| before.chars().count())
                        + 1,
                    text: text.to_owned(),
                    what,
                    remedy,
                })?;
            at += item.len() + 1;
        }
        Ok(request)
    }

    fn take(&mut self, item: &str) -> Result<(), (usize, String, &'static str)> {
        const KEYS: &str = "write KEY=VALUE with long, short, jitter, batch, warmup or source";
        const LENGTH: &str = "give a time such as 50us or 1ms, or a count such as 300";
        let Some((key, value)) = item.split_once('=') else {
            let what = if item.is_empty() {
                "nothing between the commas".to_owned()
            } else {
                format!("`{item}` has no value")
            };
            return Err((0, what, KEYS));
        };
        let behind = key.len() + 1;
        let length = || {
            Length::parse(value)
                .map_err(|what| (behind, format!("`{value}` is {what}, for {key}"), LENGTH))
        };
        let period = || match length()? {
            length if length.is_zero() => Err((
                behind,
                format!("{key} is zero"),
                "a window needs some length",
            )),
            length => Ok(length),
        };
        let number = |most: u32, remedy: &'static str| match value.parse::<u32>() {
            Ok(number) if number <= most => Ok(number),
            Ok(_) => Err((
                behind,
                format!("{key} is more than the {most} that make sense"),
                remedy,
            )),
            Err(_) => Err((
                behind,
                format!("`{value}` is not a number, for {key}"),
                remedy,
            )),
        };
        let mut twice = false;
        fn set<T>(field: &mut Option<T>, value: T) -> bool {
            field.replace(value).is_some()
        }
        match key {
            "long" => twice |= set(&mut self.long, length()?),
            "short" => twice |= set(&mut self.short, period()?),
            "jitter" => twice |= set(&mut self.jitter, length()?),
            "batch" => {
                let remedy = "give the windows of a burst, such as 4";
                let batch = number(MOST_WINDOWS, remedy)?;
                if batch == 0 {
                    return Err((behind, "a burst of no windows".to_owned(), remedy));
                }
                twice |= set(&mut self.batch, batch);
            }
            "warmup" => {
                let remedy = "give how many windows of a burst to leave out, such as 1";
                twice |= set(&mut self.warm_up, number(MOST_WINDOWS, remedy)?);
            }
            "source" => twice |= set(&mut self.source, value.to_owned()),
            _ => return Err((0, format!("`{key}` is no setting of windows"), KEYS)),
        }
        if twice {
            return Err((
                0,
                format!("{key} is given twice"),
                "leave one of the two out",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_times_or_counts() {
        let read = |text| Length::parse(text).unwrap();
        assert_eq!(read("300"), Length::Count(300));
        assert_eq!(read("300ns"), Length::Time(300));
        assert_eq!(read("50us"), Length::Time(50_000));
        assert_eq!(read("50µs"), Length::Time(50_000));
        assert_eq!(read("0.25ms"), Length::Time(250_000));
        assert_eq!(read("1.5s"), Length::Time(1_500_000_000));
        for wrong in [
            "",
            "ms",
            "1.",
            "1.ms",
            "-1",
            "1.5",
            "1h",
            "1.0000000001s",
            "1.5ns",
            "1..5ms",
            "99999999999999999999s",
            "18446744073709551615us",
        ] {
            assert!(Length::parse(wrong).is_err(), "{wrong}");
        }
        for text in ["300", "300ns", "50us", "1ms", "2s", "1001ns", "0ns"] {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_typed_is_what_is_read() {
        let request =
            WindowRequest::parse("long=1ms,short=300,jitter=20,batch=4,warmup=1,source=twin");
        let request = request.unwrap();
        assert_eq!(request.long, Some(Length::Time(1_000_000)));
        assert_eq!(request.short, Some(Length::Count(300)));
        assert_eq!(request.jitter, Some(Length::Count(20)));
        assert_eq!((request.batch, request.warm_up), (Some(4), Some(1)));
        assert_eq!(request.source.as_deref(), Some("twin"));
        let schedule = Schedule {
            long: Length::Time(1_000_000),
            short: Length::Count(300),
            jitter: Length::Count(20),
            batch: 4,
        };
        assert_eq!(schedule.numbers(), [1_000_000, 300, 20, 4]);
        let again = WindowRequest::parse(&schedule.to_string()).unwrap();
        assert_eq!((again.long, again.batch), (request.long, request.batch));
        assert!(Schedule::steady(Length::Count(4000)).is_steady());
    }

    #[test]
    fn faults_are_where_they_stand() {
        let fault = |text| {
            let error = WindowRequest::parse(text).unwrap_err();
            (error.column, error.to_string())
        };
        for (text, column, what) in [
            ("short", 1, "`short` has no value"),
            ("", 1, "nothing between the commas"),
            ("long=1ms,", 10, "nothing between the commas"),
            ("long=1ms,shrt=3", 10, "`shrt` is no setting"),
            ("long=1ms,short=3x", 16, "an unknown unit"),
            ("short=µs,batch=4", 7, "is not a length"),
            ("short=1µs,batch=0", 17, "a burst of no windows"),
            ("short=0", 7, "short is zero"),
            ("batch=1001", 7, "more than the 1000"),
            ("batch=4,batch=5", 9, "batch is given twice"),
        ] {
            let (at, told) = fault(text);
            assert_eq!(at, column, "{told}");
            assert!(told.contains(what), "{told}");
        }
        // Zero bursts are steady sampling, no jitter is none.
        let steady = WindowRequest::parse("long=0,jitter=0").unwrap();
        assert!(steady.long.unwrap().is_zero() && steady.jitter.unwrap().is_zero());
    }
}
