//! Markers: events and spans of threads, with a text or a number that says more.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerGraphType, MarkerTiming, Profile,
    StaticSchemaMarker, StaticSchemaMarkerField, StaticSchemaMarkerGraph, StringHandle,
    ThreadHandle, Timestamp,
};

/// A marker with a text.
#[derive(Clone, Debug)]
struct TextMarker {
    name: StringHandle,
    text: StringHandle,
}

impl StaticSchemaMarker for TextMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "dioptra";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "text",
        label: "Details",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        // The schema has no numbers.
        0.0
    }
}

/// Returns a time as nanoseconds since the file's first moment.
pub(crate) fn moment(nanoseconds: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(nanoseconds)
}

/// Adds a marker to a track.
pub(crate) fn add(
    file: &mut Profile,
    track: ThreadHandle,
    timing: MarkerTiming,
    name: &str,
    text: &str,
) {
    let marker = TextMarker {
        name: file.intern_string(name),
        text: file.intern_string(text),
    };
    file.add_marker(track, timing, marker);
}

/// A marker with a number of events, which the Firefox Profiler draws as a graph.
#[derive(Clone, Debug)]
struct CountMarker {
    name: StringHandle,
    count: f64,
}

impl StaticSchemaMarker for CountMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "dioptra-count";
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.count}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "count",
        label: "Events",
        format: MarkerFieldFormat::Decimal,
        flags: MarkerFieldFlags::empty(),
    }];
    const GRAPHS: &'static [StaticSchemaMarkerGraph] = &[StaticSchemaMarkerGraph {
        key: "count",
        graph_type: MarkerGraphType::Bar,
        color: None,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        // The schema has no texts.
        self.name
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.count
    }
}

/// Adds a marker with a number of events in a span of time.
pub(crate) fn add_count(
    file: &mut Profile,
    track: ThreadHandle,
    (from, to): (u64, u64),
    name: &str,
    count: u64,
) {
    let marker = CountMarker {
        name: file.intern_string(name),
        count: count as f64,
    };
    let timing = MarkerTiming::Interval(moment(from), moment(to));
    file.add_marker(track, timing, marker);
}
