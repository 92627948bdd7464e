//! The functions whose share of the time grew, and whether chance may have made it.

use super::{Chosen, INNERMOST, SAMPLES, SampleSet, text_column};
use crate::error::StoreError;
use crate::session::{Answer, Session};
use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Float64Type, Int64Type};
use dioptra_report::{adjusted, significance, two_sided};
use std::collections::HashMap;
use std::sync::Arc;

/// The options of [`regressions`].
#[derive(Clone, Debug)]
pub struct RegressionOptions {
    /// The samples of both sets.
    pub chosen: Chosen,
    /// The set that came before.
    pub from: SampleSet,
    /// The set that came after.
    pub to: SampleSet,
    /// Whether functions whose share shrank are shown as well.
    pub all: bool,
    /// The most functions.
    pub limit: usize,
}

/// The sums of a function, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    samples: i64,
    value: f64,
    /// The sum of the samples' squares: the variance of `value`, since the number of samples varies as a Poisson
    /// process does.
    variance: f64,
}

/// A share with its variance, and the square of one sample's share where there is no sample.
struct Share {
    percent: f64,
    variance: f64,
    unseen: f64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.samples += other.samples;
        self.value += other.value;
        self.variance += other.variance;
    }

    /// Returns the share of a part in percent. Its error is that of `dioptra diff` with shares.
    fn share(self, whole: Sums) -> Share {
        let share = self.value / whole.value;
        let rest = (whole.variance - self.variance).max(0.0);
        let other = 1.0 - share;
        let variance = (other * other * self.variance + share * share * rest) / whole.value.powi(2);
        Share {
            percent: 100.0 * share,
            variance: 1e4 * variance,
            // No sample was seen, but chance might have brought one.
            unseen: match self.samples {
                0 => (100.0 / whole.samples as f64).powi(2),
                _ => 0.0,
            },
        }
    }
}

/// A row of the answer.
struct Change {
    name: (String, String),
    samples: [i64; 2],
    percents: [f64; 2],
    delta: f64,
    error: f64,
    z: f64,
    q: f64,
}

/// Returns the functions whose share of the weight differs between two sets, the largest growth first: `function`,
/// `module`, `from_percent`, `to_percent`, `delta` in percentage points with its standard error, `z`, `q` and stars as
/// in `dioptra diff`. Functions are matched by name and module, so that builds can differ. Also returns the event.
///
/// # Errors
/// A set has no samples.
pub fn regressions(
    session: &Session,
    options: &RegressionOptions,
) -> Result<(Answer, String), StoreError> {
    let (conditions, event) = options.chosen.with_event(session)?;
    let sides = [&options.from, &options.to].map(|set| {
        let conditions = format!("{conditions} AND {}", set.conditions());
        let stacks = options.chosen.stacks(INNERMOST, set.partitions());
        sums(session, &conditions, &stacks)
    });
    let [from, to] = sides;
    let (from, to) = (from?, to?);
    let wholes = [&from, &to].map(|side| {
        let mut whole = Sums::default();
        side.values().for_each(|sums| whole.add(*sums));
        whole
    });
    for (whole, set) in wholes.iter().zip([&options.from, &options.to]) {
        if whole.samples == 0 || whole.value <= 0.0 {
            return Err(StoreError::Question(format!(
                "there are no samples of {} in {:?}",
                event.event, set.text
            )));
        }
    }
    let mut names: Vec<(String, String)> = from.keys().chain(to.keys()).cloned().collect();
    names.sort();
    names.dedup();
    let mut changes: Vec<Change> = names
        .into_iter()
        .map(|name| {
            let of = |side: &HashMap<_, Sums>| side.get(&name).copied().unwrap_or_default();
            let (before, after) = (of(&from), of(&to));
            let (a, b) = (before.share(wholes[0]), after.share(wholes[1]));
            let variance = a.variance + b.variance;
            let delta = b.percent - a.percent;
            Change {
                name,
                samples: [before.samples, after.samples],
                percents: [a.percent, b.percent],
                delta,
                error: variance.sqrt(),
                z: delta / (variance + a.unseen + b.unseen).sqrt(),
                q: f64::NAN,
            }
        })
        .collect();
    // All functions were tested, not only those that are shown.
    let probabilities: Vec<f64> = changes.iter().map(|change| two_sided(change.z)).collect();
    for (change, q) in changes.iter_mut().zip(adjusted(&probabilities)) {
        change.q = q;
    }
    changes.retain(|change| options.all || change.delta > 0.0);
    let size = |change: &Change| match options.all {
        true => change.delta.abs(),
        false => change.delta,
    };
    changes.sort_by(|one, other| {
        let by_size = size(other).total_cmp(&size(one));
        by_size.then_with(|| one.name.cmp(&other.name))
    });
    changes.truncate(options.limit);
    Ok((answer(&changes)?, event.event))
}

fn sums(
    session: &Session,
    conditions: &str,
    stacks: &str,
) -> Result<HashMap<(String, String), Sums>, StoreError> {
    // Rows without times stand for several samples, whose mean is all that is known.
    let answer = session.sql(&format!(
        "SELECT coalesce(k.function, '[unknown]') AS function, coalesce(k.module, '[unknown]') AS module, \
           CAST(sum(s.samples) AS BIGINT) AS samples, sum(s.value) AS value, sum(s.variance) AS variance \
         FROM (\
           SELECT stack_id, sum(samples) AS samples, sum(weight * factor) AS value, \
             sum(weight * factor * weight * factor / samples) AS variance \
           FROM {SAMPLES} a WHERE {conditions} GROUP BY stack_id) s \
         JOIN {stacks} k ON s.stack_id = k.stack_id \
         GROUP BY coalesce(k.function, '[unknown]'), coalesce(k.module, '[unknown]')"
    ))?;
    let mut sums = HashMap::new();
    for batch in &answer.batches {
        let functions = text_column(batch.column(0));
        let modules = text_column(batch.column(1));
        let samples = batch.column(2).as_primitive::<Int64Type>();
        let values = batch.column(3).as_primitive::<Float64Type>();
        let variances = batch.column(4).as_primitive::<Float64Type>();
        for (row, name) in functions.into_iter().zip(modules).enumerate() {
            let of_row = Sums {
                samples: samples.value(row),
                value: values.value(row),
                variance: variances.value(row),
            };
            sums.insert(name, of_row);
        }
    }
    Ok(sums)
}

fn answer(changes: &[Change]) -> Result<Answer, StoreError> {
    let texts = |text: &dyn Fn(&Change) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(changes.iter().map(text)))
    };
    let counts = |of: usize| -> ArrayRef {
        let each = changes.iter().map(|change| change.samples[of]);
        Arc::new(Int64Array::from_iter_values(each))
    };
    let numbers = |digits: i32, number: &dyn Fn(&Change) -> f64| -> ArrayRef {
        let rounded = |value: f64| (value * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
        let each = changes.iter().map(|change| rounded(number(change)));
        Arc::new(Float64Array::from_iter_values(each))
    };
    let batch = RecordBatch::try_from_iter([
        ("function", texts(&|change| change.name.0.clone())),
        ("module", texts(&|change| change.name.1.clone())),
        ("from_samples", counts(0)),
        ("to_samples", counts(1)),
        ("from_percent", numbers(2, &|change| change.percents[0])),
        ("to_percent", numbers(2, &|change| change.percents[1])),
        ("delta", numbers(2, &|change| change.delta)),
        ("error", numbers(2, &|change| change.error)),
        ("z", numbers(2, &|change| change.z)),
        ("q", numbers(6, &|change| change.q)),
        (
            "significance",
            texts(&|change| significance(change.q).to_owned()),
        ),
    ])?;
    Ok(Answer {
        schema: batch.schema(),
        batches: vec![batch],
    })
}
