//! Metrics of anything that has counts of a profile's events, such as the nodes of a call tree.

use crate::derived::{Derived, metric_unit};
use crate::grid::Measure;
use crate::{Input, MetricColumns, TableEvent};
use dioptra_metrics::{self as metrics, Evaluator};
use dioptra_profile::{Count, Estimate, EventProfile, Profile, SelfAndTotal};
use dioptra_tables::{Facts, Unit};

/// Metrics, bound to the events of a profile.
pub struct CountedMetrics<'a> {
    derived: Vec<Derived<'a>>,
    /// The events that formulas may need.
    events: Vec<usize>,
    /// By event: the mean factor by which its counts are scaled where counters took turns.
    scales: Vec<f64>,
    /// By event: the variance of its whole count, divided by the variance of such a count whose samples weigh the same.
    spreads: Vec<f64>,
    /// By event: the whole count.
    wholes: Vec<Count>,
}

/// A metric's name, heading and unit.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedMetric {
    /// Its name in its set.
    pub name: String,
    /// The heading of its column.
    pub title: String,
    /// Its unit; percentages are times 100 already.
    pub unit: Unit,
}

/// The value of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountedValue {
    /// The value; `None` where it is not defined, since a divisor has no samples.
    pub value: Option<f64>,
    /// One standard error of it.
    pub error: Option<f64>,
    /// Whether it rests on so few samples that chance may have made it.
    pub is_few: bool,
}

impl<'a> CountedMetrics<'a> {
    /// Binds metrics to the events of a profile.
    pub fn new(metrics: &'a [MetricColumns<'a>], input: &Input<'_>) -> Self {
        let (derived, counted) = Derived::all(metrics, &[*input], &[]);
        let indices = counted.iter().filter_map(|event: &TableEvent| event.of[0]);
        let events: Vec<usize> = indices.collect();
        let each = |value: fn(&EventProfile) -> f64| -> Vec<f64> {
            let known = events
                .iter()
                .filter_map(|index| event(input.profile, *index));
            known.map(value).collect()
        };
        CountedMetrics {
            scales: each(|event| {
                finite(event.total_estimate().value / event.total().weight as f64)
            }),
            spreads: each(|event| {
                let raw = Estimate::of(event.total()).variance;
                let scale = event.total_estimate().value / event.total().weight as f64;
                finite(event.total_estimate().variance / (raw * scale * scale))
            }),
            wholes: events
                .iter()
                .filter_map(|index| event(input.profile, *index))
                .map(EventProfile::total)
                .collect(),
            derived,
            events,
        }
    }

    /// Returns the events whose counts [`CountedMetrics::values`] needs, as indices of [`Profile::events`].
    pub fn events(&self) -> &[usize] {
        &self.events
    }

    /// Returns the metrics, in the order of their values.
    pub fn metrics(&self) -> Vec<CountedMetric> {
        let columns = self.derived.iter().flat_map(Derived::columns);
        columns
            .map(|(name, title, unit)| CountedMetric {
                name: name.to_owned(),
                title: title.to_owned(),
                unit: metric_unit(unit),
            })
            .collect()
    }

    /// Adds facts on missing inputs, on sums without some of their events, and on the choice of events.
    pub fn add_facts(&self, facts: &mut Facts) {
        for derived in &self.derived {
            derived.add_facts(facts);
        }
    }

    /// Computes the metrics of many things. `counts` returns the count of an event, given its place in
    /// [`CountedMetrics::events`], in the thing with a number; `visit` gets each number below `number` and its values.
    /// Samples within one thing are taken to vary in weight as all samples of the event do.
    pub fn values(
        &self,
        number: usize,
        counts: impl Fn(usize, usize) -> Count,
        mut visit: impl FnMut(usize, &[CountedValue]),
    ) {
        let wholes: Vec<Measure> = (0..self.events.len())
            .map(|place| self.measure(place, self.wholes[place]))
            .collect();
        let mut evaluators: Vec<Evaluator<'_>> = self
            .derived
            .iter()
            .map(|derived| derived.evaluator(&wholes))
            .collect();
        let (mut measures, mut values) = (Vec::new(), Vec::new());
        for thing in 0..number {
            measures.clear();
            values.clear();
            let each = 0..self.events.len();
            measures.extend(each.map(|place| self.measure(place, counts(place, thing))));
            for (derived, evaluator) in self.derived.iter().zip(&mut evaluators) {
                let cells = derived.values(evaluator, &measures);
                values.extend(cells.iter().map(value));
            }
            visit(thing, &values);
        }
    }

    fn measure(&self, place: usize, count: Count) -> Measure {
        let (scale, spread) = (self.scales[place], self.spreads[place]);
        let raw = Estimate::of(count);
        Measure {
            count: SelfAndTotal {
                own: count,
                total: count,
            },
            estimate: Estimate {
                value: raw.value * scale,
                variance: raw.variance * scale * scale * spread,
            },
        }
    }
}

fn event(profile: &Profile, index: usize) -> Option<&EventProfile> {
    profile.events().get(index)
}

/// Returns a factor, or 1 where there are no counts to tell it.
fn finite(factor: f64) -> f64 {
    if factor.is_finite() { factor } else { 1.0 }
}

fn value(cell: &metrics::Cell) -> CountedValue {
    match cell {
        metrics::Cell::Value {
            value,
            error,
            low_counts,
            ..
        } => CountedValue {
            value: Some(*value).filter(|value| value.is_finite()),
            error: Some(*error).filter(|error| error.is_finite()),
            is_few: *low_counts,
        },
        metrics::Cell::Missing(_) | metrics::Cell::Undefined => CountedValue::default(),
    }
}
