//! The file `info`: a header of 40 bytes, then lines of text.
//!
//! ```text
//!  0 "Ftrace!" 0   8 version u32   12 header's size u16   14 byte order u8   15 class u8
//! 16 features u64  24 kinds of lines u64   32 largest depth u16   34 zeroes
//! ```
//!
//! Each kind of lines has a bit, and the kinds follow each other in the bits' order.

/// The first bytes of the file.
pub(super) const MAGIC: &[u8; 8] = b"Ftrace!\0";
/// The size of the header in bytes.
pub(super) const HEADER_SIZE: usize = 40;
/// The version of directories that this crate writes.
pub(super) const VERSION: u32 = 4;
/// The byte order of a little-endian file.
pub(super) const LITTLE_ENDIAN: u8 = 1;

/// Library calls were recorded.
pub(super) const PLT_HOOK: u64 = 1;
/// `task.txt` is there.
pub(super) const TASK_SESSION: u64 = 1 << 1;
/// Addresses of symbols are relative to their module.
pub(super) const RELATIVE_SYMBOLS: u64 = 1 << 5;
/// The header has the largest depth.
pub(super) const MAX_STACK: u64 = 1 << 6;
/// There are events.
pub(super) const EVENTS: u64 = 1 << 7;
/// There are files of perf events.
pub(super) const PERF_EVENTS: u64 = 1 << 8;

/// Lines of one kind, with their bit.
pub(super) struct InfoLines {
    pub bit: u32,
    pub text: String,
}

/// Returns the file's bytes. `lines` are in the order of their bits.
pub(super) fn info_file(features: u64, max_stack: u16, lines: &[InfoLines]) -> Vec<u8> {
    let kinds = lines
        .iter()
        .fold(0, |kinds, lines| kinds | 1_u64 << lines.bit);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((HEADER_SIZE as u16).to_le_bytes());
    // The class: addresses of 64 bits.
    bytes.extend([LITTLE_ENDIAN, 2]);
    bytes.extend(features.to_le_bytes());
    bytes.extend(kinds.to_le_bytes());
    bytes.extend(max_stack.to_le_bytes());
    bytes.resize(HEADER_SIZE, 0);
    bytes.extend(lines.iter().flat_map(|lines| lines.text.bytes()));
    bytes
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn days_of(year: u64, month: usize) -> u64 {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        1 if is_leap => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Returns a date such as `Sat Nov 28 20:18:00 2026`, in UTC, of a number of seconds since 1970.
pub(super) fn date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // 64 bits of nanoseconds end in the year 2554.
    let (mut year, mut month, mut day) = (1970, 0, days);
    while day >= days_of(year, month) {
        day -= days_of(year, month);
        month += 1;
        if month == MONTHS.len() {
            (year, month) = (year + 1, 0);
        }
    }
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month],
        day + 1,
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// Returns the seconds since 1970 of a [`date`] between the years 1970 and 2500.
pub(super) fn seconds_of(date: &str) -> Option<u64> {
    let mut words = date.split_whitespace().skip(1);
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let day: u64 = words.next()?.parse().ok()?;
    let mut time = words
        .next()?
        .split(':')
        .map(|part| part.parse::<u64>().ok());
    let mut part = || time.next()?.filter(|part| *part < 61);
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    let year: u64 = words.next()?.parse().ok()?;
    if !(1970..2500).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    let months = (1970..=year).flat_map(|each| (0..12).map(move |month| (each, month)));
    let before = months.take_while(|each| *each != (year, month));
    let days: u64 = before.map(|(year, month)| days_of(year, month)).sum();
    Some((days + day - 1) * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_c_library() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_795_897_080, "Sat Nov 28 20:18:00 2026"),
        ] {
            assert_eq!(date(seconds), text);
            assert_eq!(seconds_of(text), Some(seconds));
        }
        assert_eq!(seconds_of("Sat Nov 99 20:18:00 2026"), None);
        assert_eq!(seconds_of(""), None);
    }
}
