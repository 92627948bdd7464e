//! Counts by source line.

use super::counts::add;
use super::model::{AnnotatedLine, Place, PlaceCount, PlaceFrame};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file and line, both perhaps unknown.
type Key = (Option<Arc<str>>, Option<u32>);

/// The line of a frame.
pub(super) fn key(frame: Option<&PlaceFrame>) -> Key {
    frame.map_or((None, None), |frame| (frame.file.clone(), frame.line))
}

/// The lines of all places; what has no line comes last.
pub(super) fn lines(places: &[Place], events: usize) -> Vec<AnnotatedLine> {
    let mut lines: BTreeMap<Key, AnnotatedLine> = BTreeMap::new();
    let mut at = |frame: Option<&PlaceFrame>, change: &dyn Fn(&mut AnnotatedLine)| {
        let key = key(frame);
        let line = lines.entry(key).or_insert_with_key(|key| AnnotatedLine {
            file: key.0.clone(),
            line: key.1,
            innermost: vec![PlaceCount::default(); events],
            outermost: vec![PlaceCount::default(); events],
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
    // Stable, so that the rest keeps its order.
    lines.sort_by_key(|line| line.file.is_none());
    lines
}
