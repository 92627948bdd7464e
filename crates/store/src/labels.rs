//! The labels by which profiles lie in folders: date, service and host.

use crate::error::StoreError;

/// The labels of a profile, which are names of folders in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The day of the recording in UTC, such as `2026-11-28`.
    pub date: String,
    /// The service that ran.
    pub service: String,
    /// The machine.
    pub host: String,
}

/// The labels that the user chose. The recording and defaults give the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenLabels {
    /// The day; else the day of the recording's first sample.
    pub date: Option<String>,
    /// The service; else [`UNKNOWN`].
    pub service: Option<String>,
    /// The machine; else the name that the recording states, else [`UNKNOWN`].
    pub host: Option<String>,
}

/// The label of profiles without one.
pub const UNKNOWN: &str = "unknown";

impl ChosenLabels {
    /// Checks the labels.
    ///
    /// # Errors
    /// A label has other characters than letters, digits and `. _ - +`, or the date is none.
    pub fn check(&self) -> Result<(), StoreError> {
        if let Some(date) = &self.date {
            check_date(date)?;
        }
        for (label, value) in [("service", &self.service), ("host", &self.host)] {
            if let Some(value) = value {
                check_label(label, value)?;
            }
        }
        Ok(())
    }
}

impl Labels {
    /// Returns the folder of a profile's rows in a table's folder.
    pub fn folder(&self) -> String {
        format!(
            "date={}/service={}/host={}",
            self.date, self.service, self.host
        )
    }

    /// Returns the first label that differs from a chosen one: its name, and both labels.
    pub(crate) fn differs<'a>(
        &'a self,
        chosen: &'a ChosenLabels,
    ) -> Option<(&'static str, &'a str, &'a str)> {
        [
            ("date", &self.date, &chosen.date),
            ("service", &self.service, &chosen.service),
            ("host", &self.host, &chosen.host),
        ]
        .into_iter()
        .find_map(|(name, there, wanted)| {
            let wanted = wanted.as_ref().filter(|wanted| *wanted != there)?;
            Some((name, &**there, &**wanted))
        })
    }
}

/// Checks that a label can be the name of a folder in every engine.
pub(crate) fn check_label(label: &'static str, value: &str) -> Result<(), StoreError> {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "._-+".contains(character);
    match !value.is_empty() && value.len() <= 200 && value.chars().all(is_plain) {
        true => Ok(()),
        false => Err(StoreError::Label {
            label,
            value: value.to_owned(),
        }),
    }
}

/// Checks that a text is a day of the calendar, such as `2026-11-28`.
pub(crate) fn check_date(value: &str) -> Result<(), StoreError> {
    match days_of(value) {
        Some(_) => Ok(()),
        None => Err(StoreError::Date {
            value: value.to_owned(),
        }),
    }
}

/// Returns the days from 1970-01-01 to a date; `None` for a text that is no date.
pub(crate) fn days_of(date: &str) -> Option<i64> {
    let bytes = date.as_bytes();
    let has_form = bytes.len() == 10
        && bytes.iter().enumerate().all(|(place, byte)| match place {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !has_form {
        return None;
    }
    let number = |range: std::ops::Range<usize>| date[range].parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Years that begin in March end with the leap day.
    let (year, month) = (year - i64::from(month <= 2), (month + 9) % 12);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let in_era = year.rem_euclid(400);
    let days = era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + of_year - 719_468;
    // A day that the month does not have comes back as another one.
    (date_of_days(days) == date).then_some(days)
}

/// Returns the date of a number of days since 1970-01-01.
pub(crate) fn date_of_days(days: i64) -> String {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns the day in UTC of a number of nanoseconds since 1970.
pub(crate) fn date_of(nanoseconds: i64) -> String {
    date_of_days(nanoseconds.div_euclid(86_400 * 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS +%F` prints them.
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_795_910_399, "2026-11-28"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date_of(seconds * 1_000_000_000), date);
            assert_eq!(days_of(date), Some(seconds / 86_400), "{date}");
        }
        for wrong in [
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "yesterday",
            "2026-00-10",
            "2026-04-31",
            "",
        ] {
            assert!(check_date(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_are_names_of_folders() {
        for good in ["web", "db-1.example.org", "a_b", "c++"] {
            assert!(check_label("service", good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a b", "x=y", "ü", "%41", "a\n"] {
            assert!(check_label("service", bad).is_err(), "{bad}");
        }
    }
}
