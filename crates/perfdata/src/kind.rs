//! Record types of files: the kernel's and perf's own.

use dioptra_perfevents::record::RecordType;

/// Types from here on are perf's own: they stand in files and pipes and never in the kernel's rings.
pub const FIRST_FILE_TYPE: u32 = 64;

macro_rules! file_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// perf's own record types (`PERF_RECORD_*` of 64 and above).
        pub mod file_type {
            use super::RecordType;
            $($(#[$doc])* pub const $name: RecordType = RecordType($value);)*
        }

        fn file_type_name(kind: RecordType) -> Option<&'static str> {
            match kind.0 {
                $($value => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

file_types! {
    /// Pipes: an event's attr and ids.
    HEADER_ATTR = 64,
    /// Pipes of perf before 3.11: an event's name.
    EVENT_TYPE = 65,
    /// Pipes: descriptions of tracepoints, whose data follows the record.
    TRACING_DATA = 66,
    /// Pipes: a module's build id.
    BUILD_ID = 67,
    /// Every ring was read once since the last one.
    FINISHED_ROUND = 68,
    /// Which CPU and thread each id belongs to.
    ID_INDEX = 69,
    /// What traces the AUX data holds.
    AUXTRACE_INFO = 70,
    /// AUX data, which follows the record.
    AUXTRACE = 71,
    /// Trouble while AUX data was recorded or decoded.
    AUXTRACE_ERROR = 72,
    /// The threads that were asked for.
    THREAD_MAP = 73,
    /// The CPUs that were asked for.
    CPU_MAP = 74,
    /// `perf stat record`: its options.
    STAT_CONFIG = 75,
    /// `perf stat record`: one count.
    STAT = 76,
    /// `perf stat record`: the end of an interval.
    STAT_ROUND = 77,
    /// Unit, scale, name or CPUs of an event.
    EVENT_UPDATE = 78,
    /// How cycle counters become times.
    TIME_CONV = 79,
    /// Pipes: a feature section.
    HEADER_FEATURE = 80,
    /// Records, compressed with zstd.
    COMPRESSED = 81,
    /// What existed before the recording has been told.
    FINISHED_INIT = 82,
    /// Records, compressed with zstd, with the length of the data.
    COMPRESSED2 = 83,
}

/// perf's name of a record type without `PERF_RECORD_`, the kernel's types and those of files.
pub fn record_name(kind: RecordType) -> Option<&'static str> {
    kind.name().or_else(|| file_type_name(kind))
}

/// Whether the type is perf's own: its records have no ids and no time at their end.
#[inline]
pub fn is_file_type(kind: RecordType) -> bool {
    kind.0 >= FIRST_FILE_TYPE
}
