//! Changes of call stacks before a tree is made of them.

use serde::Serialize;
use ts_rs::TS;

/// The parameters that change call stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct ChangesRequest {
    /// The treatment of functions that call themselves.
    pub fold: Option<Fold>,
    /// Keys of functions that are left out. What they called stands below their callers.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub merge: Vec<String>,
    /// Keys of modules whose functions are left out in the same way.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub merge_module: Vec<String>,
    /// Keys of functions whose samples do not count, whether in them or in what they called.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub drop: Vec<String>,
    /// Keys of modules whose functions' samples do not count in the same way.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub drop_module: Vec<String>,
}

/// The treatment of functions that call themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum Fold {
    /// A function directly below itself is one node.
    Direct,
    /// A function anywhere below itself is one node; the calls between are left out.
    All,
}

/// The samples that changed stacks take out of a tree, by event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct FlameChanges {
    /// The samples that were dropped.
    pub dropped_samples: Vec<u64>,
    /// The sum of their periods.
    pub dropped_weight: Vec<u64>,
    /// The samples whose functions were all left out, so that no node has them.
    pub bare_samples: Vec<u64>,
    /// The sum of their periods.
    pub bare_weight: Vec<u64>,
}
