//! The values of `--cpu` and `--time`.

use std::ops::RangeInclusive;

/// The first and the last nanosecond of a range of time; either may be open.
pub type Span = (Option<u64>, Option<u64>);

/// Parses a range of CPUs such as `2` or `0-3`.
pub fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("give CPUs such as 0,2-5".to_owned()),
    }
}

/// Returns CPUs as `--cpu` takes them.
pub fn cpu_list(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let runs = cpus.chunk_by(|one, other| *other == one + 1);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run[0].to_string(),
        })
        .collect();
    runs.join(",")
}

/// Parses `A..B` in seconds; either may be empty.
pub fn time(text: &str) -> Result<Span, String> {
    let wrong = || "give seconds since the first sample, such as 1.5..2, 1.5.. or ..2".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let nanoseconds = |text: &str| match text {
        "" => Ok(None),
        text => match text.parse::<f64>() {
            // A number beyond the largest nanosecond means no limit.
            Ok(seconds) if seconds >= 0.0 => Ok(Some((seconds * 1e9).round() as u64)),
            _ => Err(wrong()),
        },
    };
    match (nanoseconds(from)?, nanoseconds(to)?) {
        (Some(from), Some(to)) if from >= to => Err("the end must come after the start".to_owned()),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use super::{cpu_list, cpus, time};

    #[test]
    fn ranges() {
        assert_eq!(
            time("1.5..2"),
            Ok((Some(1_500_000_000), Some(2_000_000_000)))
        );
        assert_eq!(time("..0.25"), Ok((None, Some(250_000_000))));
        assert_eq!(time("3.."), Ok((Some(3_000_000_000), None)));
        for wrong in ["", "1", "2..1", "1..1", "-1..", "a..b", "nan.."] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(cpus("2-5"), Ok(2..=5));
        assert_eq!(cpus("7"), Ok(7..=7));
        assert_eq!(cpu_list(&[5, 0, 1, 2, 2]), "0-2,5");
        assert!(cpus("5-2").is_err() && cpus("x").is_err());
    }
}
