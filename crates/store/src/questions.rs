//! Named questions: queries that everybody asks, without SQL.

mod flame;
mod regressions;
mod sets;
mod top;

pub use flame::{FlameOptions, StackValues, flame};
pub use regressions::{RegressionOptions, regressions};
pub use sets::SampleSet;
pub use top::{TopOptions, top_functions};

use crate::error::StoreError;
use crate::session::{Answer, Session};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

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
    /// Returns the conditions as SQL over the view `samples`; `true` where there are none.
    fn conditions(&self) -> String {
        let mut all = Vec::new();
        let labels = [("service", &self.service), ("host", &self.host)];
        for (column, label) in labels {
            if let Some(label) = label {
                all.push(format!("{column} = {}", quoted(label)));
            }
        }
        // The conditions on dates leave out files. A recording may reach into the next day, so one day more is read.
        const DAY: i64 = 86_400 * 1_000_000_000;
        let date = |time: i64| quoted(&crate::labels::date_of(time));
        if let Some(since) = self.since {
            let from = date(since.saturating_sub(DAY));
            let own = date(since);
            all.push(format!(
                "date >= {from} AND (time_ns >= {since} OR (time_ns IS NULL AND date >= {own}))"
            ));
        }
        if let Some(until) = self.until {
            let own = date(until);
            all.push(format!(
                "date <= {own} AND (time_ns < {until} OR time_ns IS NULL)"
            ));
        }
        match all.is_empty() {
            true => "true".to_owned(),
            false => all.join(" AND "),
        }
    }

    /// Returns the conditions with the event, and the event. The event with the most samples is taken unless one was
    /// chosen.
    ///
    /// # Errors
    /// There are no such samples.
    fn with_event(&self, session: &Session) -> Result<(String, String), StoreError> {
        let conditions = self.conditions();
        let answer = session.sql(&format!(
            "SELECT event, CAST(sum(samples) AS BIGINT) AS samples FROM samples WHERE {conditions} \
             GROUP BY event ORDER BY samples DESC, event"
        ))?;
        let events = counted_texts(&answer);
        let event = match &self.event {
            Some(wanted) if events.iter().any(|(event, _)| event == wanted) => wanted.clone(),
            Some(wanted) => {
                let there: Vec<&str> = events.iter().map(|(event, _)| &**event).collect();
                return Err(StoreError::Question(match there.is_empty() {
                    true => "there are no samples that meet the conditions".to_owned(),
                    false => format!(
                        "there are no samples of {wanted}, but of {}",
                        there.join(", ")
                    ),
                }));
            }
            None => match events.first() {
                Some((event, _)) => event.clone(),
                None => {
                    return Err(StoreError::Question(
                        "there are no samples that meet the conditions".to_owned(),
                    ));
                }
            },
        };
        Ok((
            format!("{conditions} AND event = {}", quoted(&event)),
            event,
        ))
    }
}

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
