//! The views: SQL that every engine understands, over tables that are folders of Parquet files.
//!
//! An engine other than the embedded one registers each folder as a table `store_FOLDER`, with the partitions `date`,
//! `service` and `host` as text, and then creates the [`VIEWS`]. The rows of profiles that are not there, which
//! interrupted writers leave, have no profile to join with, so no view shows them.

/// The name and the query of each view.
pub const VIEWS: [(&str, &str); 5] = [
    (
        "profiles",
        "SELECT profile_id, date, service, host, start_ns, duration_ns, samples, command, kernel, arch, cpu_model, \
         file_bytes, warnings, totals, import_id FROM store_profiles",
    ),
    (
        "samples",
        "SELECT p.profile_id, s.date, s.service, s.host, s.event, p.start_ns + s.elapsed_ns AS time_ns, s.elapsed_ns, \
         s.pid, s.tid, s.process, s.comm, s.cpu, s.stack_id, k.function_id, k.function, k.module, k.frames, \
         s.samples, s.weight, s.factor \
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
];

/// Returns the statements that create the views.
pub fn statements() -> Vec<String> {
    VIEWS
        .iter()
        .map(|(name, query)| format!("CREATE VIEW {name} AS {query}"))
        .collect()
}
