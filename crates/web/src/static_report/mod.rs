//! A static report: the page and the answers that it needs, in one file that opens without a server.
//!
//! The answers are those of the server: the same functions compute them, for the requests that the page makes. `answers`
//! chooses the requests about profiles, and `traces` those about traces; they store answers until the report is full. `html`
//! writes the file.

mod answers;
mod html;
mod store;
mod traces;

use crate::api::StoredReport;
use crate::loaded::Finding;
use crate::metrics::MetricNames;
use crate::security::{Guard, Token};
use crate::server::{Shared, WebError};
use dioptra_report::SourceFiles;
use dioptra_symbols::SymbolOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The bytes that a report takes at most unless told otherwise.
const USUAL_LIMIT: usize = 4_900_000;

/// Options of a static report.
#[derive(Clone, Debug)]
pub struct StaticReportOptions {
    /// The profiles, and directories of traces; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Where names and code are looked for.
    pub symbols: SymbolOptions,
    /// Where source files are looked for.
    pub sources: SourceFiles,
    /// True if the text of source files is stored. Assembly is stored in any case.
    pub has_source: bool,
    /// The bytes that the report takes at most.
    pub limit: usize,
}

impl Default for StaticReportOptions {
    /// No profile, source text, and less than 5 MB.
    fn default() -> Self {
        StaticReportOptions {
            files: Vec::new(),
            symbols: SymbolOptions::default(),
            sources: SourceFiles::default(),
            has_source: true,
            limit: USUAL_LIMIT,
        }
    }
}

/// A static report.
#[derive(Clone, Debug)]
pub struct StaticReport {
    /// The file's content.
    pub html: Vec<u8>,
    /// Sentences about what the report holds.
    pub holds: Vec<String>,
    /// Sentences about what it leaves out.
    pub lacks: Vec<String>,
}

impl StaticReport {
    /// Loads the profiles and traces and computes the answers.
    ///
    /// # Errors
    /// [`WebError::Load`] if a file is no profile, [`WebError::Start`] if the system gives no threads, and
    /// [`WebError::Report`] if an answer fails in a way that no profile causes.
    pub fn make(options: &StaticReportOptions) -> Result<StaticReport, WebError> {
        let finding = Finding {
            symbols: options.symbols.clone(),
            sources: options.sources.clone(),
            // The report's tables have no derived columns.
            metrics: MetricNames::default(),
        };
        // Nobody can ask: there is no listener. The guard is a part of the state that answers share.
        let guard = Guard {
            token: Token::random()?,
            port: 0,
            is_public: false,
        };
        let shared = Arc::new(Shared::new(guard, &options.files, finding));
        shared.profiles.load_once();
        for profile in shared.profiles.status().profiles {
            if let Some(error) = profile.error {
                return Err(WebError::Load {
                    path: profile.path,
                    why: error.text,
                });
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // The page's own files, and room for what is written around them.
        let room = options.limit.saturating_sub(html::size_of_page() + 4000);
        let mut store = store::Store::new(Arc::clone(&shared), runtime, room);
        let collected = answers::collect(&mut store, options.has_source);
        let (holds, lacks) = collected.map_err(|failure| WebError::Report(failure.to_string()))?;
        let written = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let stored = StoredReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            written: written.map_or(0, |since| since.as_secs()),
            has_source: options.has_source,
            holds: holds.clone(),
            lacks: lacks.clone(),
            answers: store.into_answers(),
        };
        let html = html::page(&stored);
        let html = html.map_err(|error| WebError::Report(error.to_string()))?;
        Ok(StaticReport { html, holds, lacks })
    }
}
