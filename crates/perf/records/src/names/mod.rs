//! Names of the events that every kernel knows, and the numbers that `perf_event_attr` holds for them.

pub mod hardware;
pub mod software;

/// An event that every kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedEvent {
    /// The number of the event in `perf_event_attr.config`.
    pub config: u64,
    /// The names that users type; the first is the canonical one.
    pub names: &'static [&'static str],
    /// One line that says what the event counts.
    pub description: &'static str,
}

const fn event(
    config: u64,
    names: &'static [&'static str],
    description: &'static str,
) -> NamedEvent {
    NamedEvent {
        config,
        names,
        description,
    }
}
