//! Units of columns.

use std::fmt::{self, Display, Formatter};

/// The unit of a column's number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    /// Occurrences of an event.
    #[default]
    Events,
    /// Cycles of a core's clock.
    Cycles,
    /// A share of the whole, times 100. The text names the whole ("of slots"), if it is not empty.
    Percent(String),
    /// A number without unit.
    Ratio,
    /// Occurrences in a thousand instructions.
    PerKiloInstruction,
    /// Anything else, in its maker's words: "per cycle", "GHz", "MB/s".
    Other(String),
}

impl Unit {
    /// Returns the unit that a maker's word stands for; an unknown word is kept.
    pub fn from_name(name: &str) -> Self {
        let name = name.trim();
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "events" | "event" | "count" => Self::Events,
            "cycles" | "cycle" => Self::Cycles,
            "" | "ratio" => Self::Ratio,
            "%" | "percent" => Self::Percent(String::new()),
            "mpki" | "per kilo-instruction" => Self::PerKiloInstruction,
            _ => match lower
                .strip_prefix("percent of ")
                .or(lower.strip_prefix("% of "))
            {
                Some(whole) => Self::Percent(whole.to_owned()),
                None => Self::Other(name.to_owned()),
            },
        }
    }
}

impl Display for Unit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Events => f.write_str("events"),
            Self::Cycles => f.write_str("cycles"),
            Self::Percent(whole) if whole.is_empty() => f.write_str("%"),
            Self::Percent(whole) => write!(f, "% of {whole}"),
            Self::Ratio => f.write_str("ratio"),
            Self::PerKiloInstruction => f.write_str("MPKI"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        for word in [
            "events",
            "cycles",
            "%",
            "% of slots",
            "ratio",
            "MPKI",
            "GHz",
            "per cycle",
        ] {
            assert_eq!(Unit::from_name(word).to_string(), word);
        }
        assert_eq!(
            Unit::from_name("percent of cycles"),
            Unit::Percent("cycles".to_owned())
        );
        assert_eq!(Unit::from_name(""), Unit::Ratio);
    }
}
