//! Record types of files: the kernel's and perf's own.

use dioptra_perfrecords::record::RecordType;

/// Types from here on are perf's own: they stand in files and pipes and never in the kernel's rings.
pub const FIRST_FILE_TYPE: u32 = 64;

macro_rules! file_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $shown:literal;)*) => {
        /// perf's own record types (`PERF_RECORD_*` of 64 and above).
        pub mod file_type {
            use super::RecordType;
            $($(#[$doc])* pub const $name: RecordType = RecordType($value);)*
        }

        fn file_type_name(kind: RecordType) -> Option<&'static str> {
            match kind.0 {
                $($value => Some($shown),)*
                _ => None,
            }
        }
    };
}

file_types! {
    /// Pipes: an event's attr and ids.
    HEADER_ATTR = 64, "ATTR";
    /// Pipes of perf before 3.11: an event's name.
    EVENT_TYPE = 65, "EVENT_TYPE";
    /// Pipes: descriptions of tracepoints, whose data follows the record.
    TRACING_DATA = 66, "TRACING_DATA";
    /// Pipes: a module's build id.
    BUILD_ID = 67, "BUILD_ID";
    /// Every ring was read once since the last one.
    FINISHED_ROUND = 68, "FINISHED_ROUND";
    /// Which CPU and thread each id belongs to.
    ID_INDEX = 69, "ID_INDEX";
    /// The kind of traces in the AUX data.
    AUXTRACE_INFO = 70, "AUXTRACE_INFO";
    /// AUX data, which follows the record.
    AUXTRACE = 71, "AUXTRACE";
    /// Trouble while AUX data was recorded or decoded.
    AUXTRACE_ERROR = 72, "AUXTRACE_ERROR";
    /// The threads that were asked for.
    THREAD_MAP = 73, "THREAD_MAP";
    /// The CPUs that were asked for.
    CPU_MAP = 74, "CPU_MAP";
    /// `perf stat record`: its options.
    STAT_CONFIG = 75, "STAT_CONFIG";
    /// `perf stat record`: one count.
    STAT = 76, "STAT";
    /// `perf stat record`: the end of an interval.
    STAT_ROUND = 77, "STAT_ROUND";
    /// Unit, scale, name or CPUs of an event.
    EVENT_UPDATE = 78, "EVENT_UPDATE";
    /// The conversion of cycle counters to times.
    TIME_CONV = 79, "TIME_CONV";
    /// Pipes: a feature section.
    HEADER_FEATURE = 80, "FEATURE";
    /// Records, compressed with zstd.
    COMPRESSED = 81, "COMPRESSED";
    /// The end of the records about processes that existed before the recording.
    FINISHED_INIT = 82, "FINISHED_INIT";
    /// Records, compressed with zstd, with the length of the data.
    COMPRESSED2 = 83, "COMPRESSED2";
}

/// perf's name of a record type, as `perf report --stats` prints it: without `PERF_RECORD_` and `HEADER_`.
pub fn record_name(kind: RecordType) -> Option<&'static str> {
    kind.name().or_else(|| file_type_name(kind))
}

/// Whether the type is perf's own: its records have no ids and no time at their end.
#[inline]
pub fn is_file_type(kind: RecordType) -> bool {
    kind.0 >= FIRST_FILE_TYPE
}
