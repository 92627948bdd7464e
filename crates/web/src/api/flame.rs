//! Merged call trees.

use super::FactAnswer;
use super::changes::FlameChanges;
use super::requests::Direction;
use serde::Serialize;
use ts_rs::TS;

/// The answer of `/api/flame`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FlameAnswer {
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The functions that stand below a function.
    pub direction: Direction,
    /// The events, in the order of all counts.
    pub events: Vec<FlameEvent>,
    /// The functions of the nodes.
    pub functions: Vec<FlameFunction>,
    /// Their modules.
    pub modules: Vec<FlameModule>,
    /// With a root: the nodes above it, the outermost first.
    pub above: Vec<FlameAbove>,
    /// The nodes.
    pub nodes: FlameNodes,
    /// The nodes that were left out because they are too light or too deep.
    pub left_out: FlameLeftOut,
    /// The samples that changed stacks take out of the tree, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub changes: Option<FlameChanges>,
    /// The number of nodes of the whole tree.
    pub total_nodes: usize,
    /// With `metric`: the metrics of nodes with everything below them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub metrics: Option<Vec<FlameMetric>>,
    /// With `with`: the weights of the same nodes in the other profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub other: Option<FlameOther>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// A metric of the nodes of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FlameMetric {
    /// Its name in its set.
    pub name: String,
    /// The heading of its column in tables.
    pub title: String,
    /// Its unit.
    pub unit: Option<String>,
    /// Its value for all selected samples; null where it is not defined.
    pub whole: Option<f64>,
    /// By node: the value for the node and everything below it; null where it is not defined.
    pub values: Vec<Option<f64>>,
    /// By node: one standard error of the value.
    pub errors: Vec<Option<f64>>,
    /// By node: 1 if the value rests on so few samples that chance may have made it.
    pub few: Vec<u8>,
}

/// An event of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FlameEvent {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// The unit of its weights.
    pub unit: Option<String>,
    /// The selection's samples.
    pub samples: u64,
    /// The sum of their periods.
    pub weight: u64,
}

/// A function of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FlameFunction {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its module, as an index.
    pub module: u32,
    /// Whether it stands for code that the compiler put into its caller.
    pub inlined: bool,
}

/// A module of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FlameModule {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// The kind of its code.
    pub kind: FlameModuleKind,
}

/// The kind of a module's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum FlameModuleKind {
    /// An executable or shared object.
    File,
    /// The kernel and its modules.
    Kernel,
    /// Code that the kernel maps into each process.
    Vdso,
    /// Memory without a file, into which just-in-time compilers write.
    Jit,
    /// Addresses without a mapping.
    Unknown,
}

/// A node above the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FlameAbove {
    /// The node's number.
    pub id: u32,
    /// Its function, as an index.
    pub function: u32,
}

/// Nodes as parallel lists. A node stands behind its parent and before its parent's next child; the heaviest child of a
/// node comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct FlameNodes {
    /// The numbers by which requests name nodes.
    pub id: Vec<u32>,
    /// The place of each node's parent in these lists; -1 for top nodes.
    pub parent: Vec<i32>,
    /// The function, as an index.
    pub function: Vec<u32>,
    /// The number of children in the whole tree.
    pub below: Vec<u32>,
    /// By event: the weight at the function itself.
    pub own: Vec<Vec<u64>>,
    /// By event: the weight of all samples that pass through the node.
    pub total: Vec<Vec<u64>>,
    /// By event: the samples at the function itself.
    pub own_samples: Vec<Vec<u64>>,
    /// By event: all samples that pass through the node.
    pub total_samples: Vec<Vec<u64>>,
}

/// The nodes that a tree leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct FlameLeftOut {
    /// The number of nodes.
    pub nodes: usize,
    /// The weight of the first event in these nodes, counted once.
    pub weight: u64,
}

/// The weights of a tree's nodes in another profile. A node there is the same if the names of all functions from the top to
/// it are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FlameOther {
    /// The other profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// By event: the other profile's whole weight; null where it has no such event.
    pub weight: Vec<Option<u64>>,
    /// By event, then node: the weight of all samples that pass through the node.
    pub total: Vec<Vec<u64>>,
    /// By event, then node: the number of these samples.
    pub total_samples: Vec<Vec<u64>>,
    /// The heaviest paths that only the other profile has, the heaviest first, at most 1000.
    pub new: Vec<FlameNew>,
    /// The weight of the first event in paths that only the other profile has.
    pub new_weight: u64,
}

/// A node that only the other profile has, below a node that both have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FlameNew {
    /// The place in the answer's lists of the node under which it stands; -1 at the top.
    pub parent: i32,
    /// The function's name.
    pub name: String,
    /// The name of its module.
    pub module: String,
    /// The weight of the first event.
    pub weight: u64,
}
