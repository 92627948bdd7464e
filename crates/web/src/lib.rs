//! A local web server and its page, which show profiles and traces in a browser.
//!
//! A [`Server`] listens on loopback and loads its profiles in the background. The page is a part of the program (`ui/dist`);
//! it asks for tables, trees and timelines below `/api/`, which `API.md` describes. Answers come from the functions that
//! `dioptra report` and `annotate` call, so their numbers are the same.
//!
//! - `security`: who may ask; `routes`: from an address to an answer; `parameters`: from a query to a request.
//! - `profiles`: loading, and loading again when a file changes; `loaded`: one loaded recording; `keys`: names of its things
//!   in addresses.
//! - `selected`: the samples of a request; `tables` with `table_rows`, `flames`, `functions`, `timelines`, `heatmaps`, `searches`, `overview`: answers.
//! - `changes`: call stacks that are changed before a tree is made of them.
//! - `metrics` and `windowed`: metrics with their intervals; `other`, `comparing`, `flame_changes`: changes to another profile.
//! - `static_report`: the page with its answers as one file, which needs no server.
//! - `traces`: the same for traces.
//! - `jobs` and `cache`: answers are computed on threads that may block, while somebody waits, and kept in bounded memory.
//! - [`api`]: the types of requests and answers, from which the page's TypeScript types are written.

pub mod api;
mod assets;
mod cache;
mod changes;
mod comparing;
mod failure;
mod filter;
mod flame_changes;
mod flame_metrics;
mod flames;
mod function_changes;
mod functions;
mod heatmaps;
mod jobs;
mod keys;
mod loaded;
mod metrics;
mod other;
mod overview;
mod parameters;
mod profiles;
mod routes;
mod row_keys;
mod searches;
mod security;
mod selected;
mod server;
mod static_report;
mod table_rows;
mod tables;
mod texts;
mod timeline_changes;
mod timelines;
mod traces;
mod window_columns;
mod windowed;

pub use server::{Server, Stopper, WebError, WebOptions};
pub use static_report::{StaticReport, StaticReportOptions};
