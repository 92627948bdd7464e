//! The metrics of a call tree's nodes.

use crate::api::FlameMetric;
use crate::flames::FlatTree;
use crate::texts;
use dioptra_profile::Count;
use dioptra_report::CountedMetrics;

/// Samples below this number are few, as in tables.
pub(crate) const FEW: u64 = 10;

/// The events whose counts a tree needs: those that are shown, then those of the metrics.
pub(crate) fn events_with(shown: &[usize], metrics: &CountedMetrics<'_>) -> Vec<usize> {
    let mut events = shown.to_vec();
    for event in metrics.events() {
        if !events.contains(event) {
            events.push(*event);
        }
    }
    events
}

/// Computes the metrics of nodes with everything below them. `events` are those of the tree, `wholes` the counts of all
/// selected samples of the metrics' events.
pub(crate) fn answer(
    metrics: &CountedMetrics<'_>,
    events: &[usize],
    tree: &FlatTree,
    nodes: &[usize],
    wholes: impl Fn(usize) -> Count,
) -> Vec<FlameMetric> {
    let mut answer: Vec<FlameMetric> = metrics
        .metrics()
        .into_iter()
        .map(|metric| FlameMetric {
            name: texts::name(&metric.name),
            title: texts::name(&metric.title),
            unit: metric.unit.id().map(str::to_owned),
            whole: None,
            values: Vec::with_capacity(nodes.len()),
            errors: Vec::with_capacity(nodes.len()),
            few: Vec::with_capacity(nodes.len()),
        })
        .collect();
    let places: Vec<Option<usize>> = metrics
        .events()
        .iter()
        .map(|event| events.iter().position(|known| known == event))
        .collect();
    let count = |place: usize, thing: usize| {
        let of_event = places[place].and_then(|place| tree.total.get(place));
        of_event.map_or(Count::default(), |counts| counts[nodes[thing]])
    };
    metrics.values(nodes.len(), count, |_, values| {
        for (metric, value) in answer.iter_mut().zip(values) {
            metric.values.push(value.value);
            metric.errors.push(value.error);
            metric.few.push(value.is_few.into());
        }
    });
    let whole = |place: usize, _: usize| wholes(metrics.events()[place]);
    metrics.values(1, whole, |_, values| {
        for (metric, value) in answer.iter_mut().zip(values) {
            metric.whole = value.value;
        }
    });
    answer
}
