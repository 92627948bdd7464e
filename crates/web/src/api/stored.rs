//! The contents of a static report, which the page reads instead of asking a server.

use serde::Serialize;
use std::collections::BTreeMap;
use ts_rs::TS;

/// The answers that a static report stores, and what a reader must know about them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct StoredReport {
    /// The version of dioptra that wrote the report.
    pub version: String,
    /// Seconds since 1970 when it was written.
    pub written: u64,
    /// True if the text of source files is stored.
    pub has_source: bool,
    /// Sentences about what the report holds.
    pub holds: Vec<String>,
    /// Sentences about what the report leaves out.
    pub lacks: Vec<String>,
    /// The answers: JSON in gzip in base64, by the request that the page makes, such as `table?by=function&profile=0`.
    /// Parameters that the page applies itself are not part of the request.
    pub answers: BTreeMap<String, String>,
}
