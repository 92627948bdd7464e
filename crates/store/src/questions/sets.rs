//! Sets of samples to compare.

use super::quoted;
use crate::error::StoreError;
use crate::labels::check_date;

/// A set of samples: those of a day, of days, of a profile, a service or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleSet {
    /// The text that the user wrote.
    pub text: String,
    conditions: String,
    /// The conditions on the partitions `date`, `service` and `host`, if there are any.
    partitions: Option<String>,
}

impl SampleSet {
    /// Parses a set: conditions with `,` between, each a `DATE`, `DATE..DATE` with both days in it, the first digits of
    /// a profile's id, `service=NAME` or `host=NAME`.
    ///
    /// # Errors
    /// A condition is none of these.
    pub fn parse(text: &str) -> Result<SampleSet, StoreError> {
        let conditions = text
            .split(',')
            .map(condition)
            .collect::<Result<Vec<_>, _>>()?;
        let of_partitions = |one: &&String| !one.starts_with(PROFILE);
        let partitions: Vec<&str> = conditions
            .iter()
            .filter(of_partitions)
            .map(|condition| &**condition)
            .collect();
        Ok(SampleSet {
            text: text.to_owned(),
            partitions: (!partitions.is_empty()).then(|| partitions.join(" AND ")),
            conditions: conditions.join(" AND "),
        })
    }

    /// Returns the conditions as SQL over the view `samples`.
    pub(super) fn conditions(&self) -> &str {
        &self.conditions
    }

    /// Returns the conditions on partitions as SQL over any table of rows; `None` where there are none.
    pub(super) fn partitions(&self) -> Option<&str> {
        self.partitions.as_deref()
    }
}

/// The begin of the condition on a profile's id.
const PROFILE: &str = "profile_id LIKE ";

fn condition(text: &str) -> Result<String, StoreError> {
    /// The fewest digits of an id: fewer are soon those of several profiles.
    const FEWEST: usize = 6;
    if let Some((column, value)) = text.split_once('=') {
        return match column {
            "service" | "host" => Ok(format!("{column} = {}", quoted(value))),
            _ => Err(StoreError::Question(format!(
                "{column:?} is no label; there are service and host"
            ))),
        };
    }
    if let Some((from, to)) = text.split_once("..") {
        check_date(from)?;
        check_date(to)?;
        return Ok(format!("date BETWEEN {} AND {}", quoted(from), quoted(to)));
    }
    if check_date(text).is_ok() {
        return Ok(format!("date = {}", quoted(text)));
    }
    let is_id = (FEWEST..=32).contains(&text.len())
        && text
            .chars()
            .all(|digit| matches!(digit, '0'..='9' | 'a'..='f'));
    if is_id {
        return Ok(format!("{PROFILE}{}", quoted(&format!("{text}%"))));
    }
    Err(StoreError::Question(format!(
        "{text:?} names no samples; give a DATE, DATE..DATE, 6 or more digits of a profile's id, service=NAME or \
         host=NAME"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_become_conditions() {
        let sql = |text| SampleSet::parse(text).unwrap().conditions;
        assert_eq!(sql("2026-11-28"), "date = '2026-11-28'");
        assert_eq!(
            sql("2026-11-01..2026-11-07,service=web"),
            "date BETWEEN '2026-11-01' AND '2026-11-07' AND service = 'web'"
        );
        assert_eq!(sql("0123abcd"), "profile_id LIKE '0123abcd%'");
        let set = SampleSet::parse("0123abcd,host=a").unwrap();
        assert_eq!(set.partitions(), Some("host = 'a'"));
        assert_eq!(SampleSet::parse("0123abcd").unwrap().partitions(), None);
        for wrong in [
            "",
            "2026-02-30",
            "0123",
            "color=red",
            "x' OR true",
            "2026-11-01..",
        ] {
            assert!(SampleSet::parse(wrong).is_err(), "{wrong}");
        }
    }
}
