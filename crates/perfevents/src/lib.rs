//! The sane interface to perf_event_open: events, sessions, rings and their records.
