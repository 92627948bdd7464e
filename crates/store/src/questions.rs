//! Named questions: queries that everybody asks, without SQL.

mod flame;
mod regressions;
mod sets;
mod top;

pub use flame::{FlameOptions, StackValues, flame};
pub use regressions::{RegressionOptions, regressions};
pub use sets::SampleSet;
pub use top::{TopOptions, top_functions};

use crate::content::EventTotal;
use crate::error::StoreError;
use crate::session::{Answer, Session};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::BTreeMap;

/// Each sample of each profile with the columns that questions need, but without the functions of its stack.
///
/// A stack's id says which functions it has, in all profiles. So questions sum by `stack_id` first and look up the
/// functions of the sums. The view `samples` looks them up for each sample, in a table of all stacks of all profiles.
const SAMPLES: &str = "(SELECT p.profile_id, s.date, s.service, s.host, s.event, \
     p.start_ns + s.elapsed_ns AS time_ns, s.process, s.comm, s.cpu, s.stack_id, s.samples, s.weight, s.factor \
     FROM store_samples s JOIN store_profiles p ON s.import_id = p.import_id)";

/// The samples that a question is about: each condition that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The event; else the one with the most samples.
    pub event: Option<String>,
    /// The service.
    pub service: Option<String>,
    /// The machine.
    pub host: Option<String>,
    /// Nanoseconds since 1970 of the first moment. Samples without a time count from the start of their profile's date
    /// on.
    pub since: Option<i64>,
    /// Nanoseconds since 1970 of the first moment that no longer counts.
    pub until: Option<i64>,
}

impl Chosen {
    /// Returns the conditions as SQL over samples; `true` where there are none.
    fn conditions(&self) -> String {
        let mut all = self.label_conditions();
        if let Some(since) = self.since {
            let own = date_literal(since);
            all.push(format!(
                "(time_ns >= {since} OR (time_ns IS NULL AND date >= {own}))"
            ));
        }
        if let Some(until) = self.until {
            all.push(format!("(time_ns < {until} OR time_ns IS NULL)"));
        }
        joined(&all)
    }

    /// Returns the conditions on the partitions `date`, `service` and `host`, which leave out files.
    fn label_conditions(&self) -> Vec<String> {
        let mut all = Vec::new();
        let labels = [("service", &self.service), ("host", &self.host)];
        for (column, label) in labels {
            if let Some(label) = label {
                all.push(format!("{column} = {}", quoted(label)));
            }
        }
        // A recording may reach into the next day, so one day more is read.
        const DAY: i64 = 86_400 * 1_000_000_000;
        if let Some(since) = self.since {
            let from = date_literal(since.saturating_sub(DAY));
            all.push(format!("date >= {from}"));
        }
        if let Some(until) = self.until {
            let own = date_literal(until);
            all.push(format!("date <= {own}"));
        }
        all
    }

    /// Returns a query for the stacks that the chosen samples may have: `stack_id` and these columns, such as
    /// `min(function) AS function`, once for each stack. More conditions on partitions may leave out more files.
    ///
    /// Rows of imports without a profile are among them. No sample of a profile refers to them, and a stack's id
    /// derives from its content.
    fn stacks(&self, columns: &str, more: Option<&str>) -> String {
        let mut conditions = self.label_conditions();
        conditions.extend(more.map(str::to_owned));
        let conditions = joined(&conditions);
        format!(
            "(SELECT stack_id, {columns} FROM store_stacks WHERE {conditions} GROUP BY stack_id)"
        )
    }

    /// Returns the events of the chosen samples with their numbers of samples, the event with the most samples first.
    fn events(&self, session: &Session) -> Result<Vec<CountedEvent>, StoreError> {
        let conditions = self.conditions();
        if self.since.is_some() || self.until.is_some() {
            let answer = session.sql(&format!(
                "SELECT event, CAST(sum(samples) AS BIGINT) AS samples FROM {SAMPLES} s WHERE {conditions} \
                 GROUP BY event ORDER BY samples DESC, event"
            ))?;
            let counted = counted_texts(&answer).into_iter();
            let counted = counted.map(|(event, samples)| CountedEvent {
                event,
                samples,
                unit: None,
            });
            return Ok(counted.collect());
        }
        // Whole profiles: their rows state the sums.
        let answer = session.sql(&format!(
            "SELECT totals FROM profiles WHERE {conditions} AND samples > 0"
        ))?;
        let mut sums: BTreeMap<String, (i64, String)> = BTreeMap::new();
        for batch in &answer.batches {
            for text in text_column(batch.column(0)) {
                let totals: Vec<EventTotal> = serde_json::from_str(&text).map_err(|error| {
                    StoreError::Question(format!(
                        "the totals of a profile are not readable: {error}"
                    ))
                })?;
                for total in totals.into_iter().filter(|total| total.samples > 0) {
                    let sum = sums.entry(total.event).or_insert((0, total.unit));
                    sum.0 = sum.0.saturating_add(total.samples);
                }
            }
        }
        let of_sum = |(event, (samples, unit))| CountedEvent {
            event,
            samples,
            unit: Some(unit),
        };
        let mut events: Vec<CountedEvent> = sums.into_iter().map(of_sum).collect();
        // Events of equal numbers stay in the order of their names.
        events.sort_by_key(|event| std::cmp::Reverse(event.samples));
        Ok(events)
    }

    /// Returns the conditions with the event, and the event. The event with the most samples is taken unless one was
    /// chosen.
    ///
    /// # Errors
    /// There are no such samples.
    fn with_event(&self, session: &Session) -> Result<(String, CountedEvent), StoreError> {
        let events = self.events(session)?;
        let names: Vec<String> = events.iter().map(|event| event.event.clone()).collect();
        let found = events.into_iter().find(|event| match &self.event {
            Some(wanted) => event.event == *wanted,
            None => true,
        });
        let Some(event) = found else {
            return Err(StoreError::Question(
                match (&self.event, names.is_empty()) {
                    (Some(wanted), false) => format!(
                        "there are no samples of {wanted}, but of {}",
                        names.join(", ")
                    ),
                    _ => "there are no samples that meet the conditions".to_owned(),
                },
            ));
        };
        let conditions = self.conditions();
        let own = quoted(&event.event);
        Ok((format!("{conditions} AND event = {own}"), event))
    }
}

/// Returns the day in UTC of a time in nanoseconds since 1970, as a literal of SQL.
fn date_literal(time: i64) -> String {
    quoted(&crate::labels::date_of(time))
}

/// Returns conditions as one; `true` where there are none.
fn joined(conditions: &[String]) -> String {
    match conditions.is_empty() {
        true => "true".to_owned(),
        false => conditions.join(" AND "),
    }
}

/// An event of samples.
struct CountedEvent {
    event: String,
    samples: i64,
    /// The unit of its weights, where the profiles' rows were read.
    unit: Option<String>,
}

/// The innermost function of stacks that have one id, for [`Chosen::stacks`].
const INNERMOST: &str = "min(function) AS function, min(module) AS module";

/// Returns a text as a literal of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns the rows of an answer of a text and a number.
fn counted_texts(answer: &Answer) -> Vec<(String, i64)> {
    let mut rows = Vec::new();
    for batch in &answer.batches {
        let texts = text_column(batch.column(0));
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        rows.extend(texts.into_iter().zip(numbers.values().iter().copied()));
    }
    rows
}

/// Returns the texts of a column, whatever the engine's type of texts is; nulls are empty.
fn text_column(column: &arrow::array::ArrayRef) -> Vec<String> {
    use arrow::array::Array;
    let as_texts = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8);
    let column = as_texts.as_ref().unwrap_or(column);
    match column.as_string_opt::<i32>() {
        Some(texts) => texts
            .iter()
            .map(|text| text.unwrap_or_default().to_owned())
            .collect(),
        None => vec![String::new(); column.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_do_not_end_a_literal() {
        let chosen = Chosen {
            service: Some("a' OR 'b' = 'b".to_owned()),
            ..Chosen::default()
        };
        assert_eq!(chosen.conditions(), "service = 'a'' OR ''b'' = ''b'");
        assert_eq!(Chosen::default().conditions(), "true");
    }
}
