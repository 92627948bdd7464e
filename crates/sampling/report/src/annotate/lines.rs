//! Counts by source line.

use super::counts::add;
use super::model::{AddressCount, AddressFrame, AnnotatedAddress, AnnotatedLine};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file and line, both perhaps unknown.
type Key = (Option<Arc<str>>, Option<u32>);

/// Returns the file and line of a frame.
pub(super) fn key(frame: Option<&AddressFrame>) -> Key {
    frame.map_or((None, None), |frame| (frame.file.clone(), frame.line))
}

/// Sums the counts of all places by line. Places without a line come last.
pub(super) fn lines(places: &[AnnotatedAddress], events: usize) -> Vec<AnnotatedLine> {
    let mut lines: BTreeMap<Key, AnnotatedLine> = BTreeMap::new();
    let mut at = |frame: Option<&AddressFrame>, change: &dyn Fn(&mut AnnotatedLine)| {
        let key = key(frame);
        let line = lines.entry(key).or_insert_with_key(|key| AnnotatedLine {
            file: key.0.clone(),
            line: key.1,
            innermost: vec![AddressCount::default(); events],
            outermost: vec![AddressCount::default(); events],
            has_code: false,
        });
        change(line);
    };
    for place in places {
        at(place.frames.first(), &|line| {
            line.has_code = true;
            add(&mut line.innermost, &place.counts);
        });
        at(place.frames.last(), &|line| {
            add(&mut line.outermost, &place.counts);
        });
    }
    let mut lines: Vec<AnnotatedLine> = lines.into_values().collect();
    // The sort is stable, so lines with a file keep their order.
    lines.sort_by_key(|line| line.file.is_none());
    lines
}
