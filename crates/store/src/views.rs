//! The views: SQL that every engine understands, over tables that are folders of Parquet files.
//!
//! An engine other than the embedded one registers each folder as a table `store_FOLDER`, with the partitions `date`,
//! `service` and `host` as text, and then creates the [`VIEWS`]. The rows of profiles that are not there, which
//! interrupted writers leave, have no profile to join with, so no view shows them.

/// The name and the query of each view.
pub const VIEWS: [(&str, &str); 10] = [
    (
        "profiles",
        "SELECT profile_id, date, service, host, start_ns, duration_ns, samples, command, kernel, arch, cpu_model, \
         file_bytes, warnings, totals, import_id, kind, calls FROM store_profiles",
    ),
    (
        "samples",
        "SELECT p.profile_id, s.date, s.service, s.host, s.event, p.start_ns + s.elapsed_ns AS time_ns, s.elapsed_ns, \
         s.pid, s.tid, s.process, s.comm, s.cpu, s.stack_id, k.function_id, k.function, k.module, k.frames, \
         s.samples, s.weight, s.factor, s.address, s.source, s.line \
         FROM store_samples s \
         JOIN store_profiles p ON s.import_id = p.import_id \
         JOIN store_stacks k ON s.import_id = k.import_id AND s.stack_id = k.stack_id \
         AND s.date = k.date AND s.service = k.service AND s.host = k.host",
    ),
    (
        "stacks",
        "SELECT p.profile_id, k.stack_id, k.depth, k.function_id, k.function, k.module, k.function_ids, k.frames \
         FROM store_stacks k JOIN store_profiles p ON k.import_id = p.import_id",
    ),
    (
        "functions",
        "SELECT DISTINCT f.function_id, f.name, f.file, f.module_id, f.module \
         FROM store_functions f JOIN store_profiles p ON f.import_id = p.import_id",
    ),
    (
        "modules",
        "SELECT DISTINCT m.module_id, m.name, m.path, m.build_id, m.kind \
         FROM store_modules m JOIN store_profiles p ON m.import_id = p.import_id",
    ),
    (
        "mappings",
        "SELECT p.profile_id, m.date, m.service, m.host, m.pid, m.process, m.module_id, m.module, m.start_address, \
         m.end_address, m.file_offset, m.from_ns, m.until_ns \
         FROM store_mappings m JOIN store_profiles p ON m.import_id = p.import_id",
    ),
    (
        "windows",
        "SELECT p.profile_id, w.date, w.service, w.host, w.event, w.value, w.event_group, w.burst, w.window_number, \
         p.start_ns + w.elapsed_ns AS time_ns, w.elapsed_ns, w.period, w.pid, w.tid, w.process, w.comm, w.cpu, \
         b.function_id AS start_function_id, b.function AS start_function, b.module AS start_module, \
         w.stack_id, k.function_id, k.function, k.module, k.frames, w.flags \
         FROM store_windows w \
         JOIN store_profiles p ON w.import_id = p.import_id \
         JOIN store_stacks k ON w.import_id = k.import_id AND w.stack_id = k.stack_id \
         AND w.date = k.date AND w.service = k.service AND w.host = k.host \
         JOIN store_stacks b ON w.import_id = b.import_id AND w.start_stack_id = b.stack_id \
         AND w.date = b.date AND w.service = b.service AND w.host = b.host",
    ),
    (
        "window_totals",
        "SELECT p.profile_id, w.date, w.service, w.host, w.event, w.value, w.enabled_ns, w.running_ns \
         FROM store_window_totals w JOIN store_profiles p ON w.import_id = p.import_id",
    ),
    (
        "calls",
        "SELECT p.profile_id, c.date, c.service, c.host, p.start_ns + c.elapsed_ns AS time_ns, c.elapsed_ns, \
         c.pid, c.tid, c.process, c.comm, c.stack_id, k.function_id, k.function, k.module, k.frames, \
         c.parent_id, c.parent, c.calls, c.duration_ns, c.total_ns, c.self_ns, c.shortest_ns, c.longest_ns, \
         c.weighted_calls, c.weighted_total_ns, c.weighted_self_ns, c.open_calls, c.ending \
         FROM store_calls c \
         JOIN store_profiles p ON c.import_id = p.import_id \
         JOIN store_stacks k ON c.import_id = k.import_id AND c.stack_id = k.stack_id \
         AND c.date = k.date AND c.service = k.service AND c.host = k.host",
    ),
    (
        "call_estimates",
        "SELECT p.profile_id, e.date, e.service, e.host, e.function_id, e.function, e.module, e.calls, e.calls_error, \
         e.total_ns, e.total_error_ns, e.self_ns, e.self_error_ns \
         FROM store_call_estimates e JOIN store_profiles p ON e.import_id = p.import_id",
    ),
];

/// Returns the statements that create the views.
pub fn statements() -> Vec<String> {
    VIEWS
        .iter()
        .map(|(name, query)| format!("CREATE VIEW {name} AS {query}"))
        .collect()
}
