//! Many profiles: a store of Parquet files, and SQL over it.
//!
//! A [`Store`] is a folder, or a bucket of a server that speaks S3's protocol. [`Store::add`] reads a recording and
//! writes its rows as Parquet, in folders by date, service and host. All engines that read Parquet read the same files;
//! [`schema`] states their columns, and [`views`] the SQL that joins them. `Session` (feature `query`) answers SQL and
//! named questions with DataFusion, embedded.
//!
//! Ids derive from content. A function has one id on every machine that runs the same build, and a recording has one
//! id however often it is added.
//!
//! **Invariant:** a profile is there if and only if its object in `profiles` is. That object is written last, if there is
//! none, and names all others. Writers that were interrupted leave objects that no profile names; no view
//! shows their rows, and [`Store::gc`] deletes them.

mod columns;
mod compact;
mod content;
mod error;
mod ids;
mod labels;
mod layout;
mod maintenance;
#[cfg(feature = "query")]
mod memory;
#[cfg(feature = "query")]
mod output;
#[cfg(feature = "query")]
mod page;
mod profile_row;
#[cfg(feature = "query")]
mod profile_table;
#[cfg(feature = "query")]
mod questions;
pub mod schema;
#[cfg(feature = "query")]
mod session;
mod storage;
mod store;
pub mod views;

pub use compact::{CompactOptions, Compacted, LONGEST_SETTLE};
pub use content::{DEFAULT_EACH_CALL, EventTotal, Kind, ReadOptions};
pub use error::StoreError;
pub use labels::{ChosenLabels, Labels, UNKNOWN};
pub use maintenance::{Collected, Orphans, Verified};
#[cfg(feature = "query")]
pub use output::{OutputFormat, write_answer};
#[cfg(feature = "query")]
pub use page::write_page;
pub use profile_row::{RowObject, StoredProfile};
#[cfg(feature = "query")]
pub use questions::{
    Chosen, FlameOptions, RegressionOptions, SampleSet, StackValues, TopOptions, flame,
    regressions, top_functions,
};
#[cfg(feature = "query")]
pub use session::{Answer, Session};
pub use store::{Added, DEFAULT_TIMEOUT, How, Store};
