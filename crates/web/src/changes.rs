//! Changes of call stacks, as requests name them, and the trees that come of them.

use crate::api::{ChangesRequest, Direction, FlameChanges, FlameModuleKind, FlameRequest, Fold};
use crate::failure::Failure;
use crate::flames::LEAST;
use crate::selected::Selected;
use dioptra_profile::{
    ChangedTree, ChangedTreeOptions, Count, FunctionId, Module, ModuleId, Recursion, StackChanges,
    TreeDirection, TreeLimits, changed_call_tree,
};
use dioptra_symbols::ModuleKind;

/// Changes of call stacks: a part of the key of trees that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changes {
    recursion: Recursion,
    /// Rising.
    merged: Vec<FunctionId>,
    merged_modules: Vec<ModuleId>,
    dropped: Vec<FunctionId>,
    dropped_modules: Vec<ModuleId>,
}

impl Changes {
    /// Finds the functions and modules that a request names.
    pub(crate) fn of(selected: &Selected, request: &ChangesRequest) -> Result<Changes, Failure> {
        let keys = &selected.loaded.keys;
        let functions = |list: &[String]| -> Result<Vec<FunctionId>, Failure> {
            let found = list
                .iter()
                .map(|key| selected.named().find_function(keys, key));
            sorted(found)
        };
        let modules = |list: &[String]| -> Result<Vec<ModuleId>, Failure> {
            sorted(list.iter().map(|key| keys.find_module(key)))
        };
        Ok(Changes {
            recursion: match request.fold {
                None => Recursion::Kept,
                Some(Fold::Direct) => Recursion::DirectFolded,
                Some(Fold::All) => Recursion::Folded,
            },
            merged: functions(&request.merge)?,
            merged_modules: modules(&request.merge_module)?,
            dropped: functions(&request.drop)?,
            dropped_modules: modules(&request.drop_module)?,
        })
    }

    fn stack_changes(&self, selected: &Selected) -> StackChanges {
        let functions = selected.named().names.functions();
        let marked = |ids: &[FunctionId], modules: &[ModuleId]| -> Vec<bool> {
            if ids.is_empty() && modules.is_empty() {
                return Vec::new();
            }
            let all = functions.iter().zip(0_u32..);
            all.map(|(function, id)| {
                ids.binary_search(&id).is_ok() || modules.binary_search(&function.module).is_ok()
            })
            .collect()
        };
        StackChanges {
            merged: marked(&self.merged, &self.merged_modules),
            dropped: marked(&self.dropped, &self.dropped_modules),
            recursion: self.recursion,
        }
    }
}

fn sorted(found: impl Iterator<Item = Result<u32, Failure>>) -> Result<Vec<u32>, Failure> {
    let mut found: Vec<u32> = found.collect::<Result<_, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The part of a tree of callers that is made: all of it would be too much, since each function has a path of its own to
/// each caller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum CallersPart {
    /// Functions and callers with enough weight.
    #[default]
    Heavy,
    /// All functions, and so many rows below each other.
    Top(u32),
    /// The callers of one function that was sampled itself, so many rows below each other; all of them, however light.
    Of(FunctionId, u32),
    /// The callers of one function with enough of its weight.
    HeavyOf(FunctionId),
}

impl CallersPart {
    /// Returns the part that a request needs. `path` is the node that it asks for.
    pub(crate) fn of(request: &FlameRequest, path: &[FunctionId]) -> CallersPart {
        let is_inverted = request.direction == Some(Direction::Callers);
        if !is_inverted || request.focus.is_some() || request.root.is_some() {
            return CallersPart::Heavy;
        }
        // One more row, so that nodes can say how many are below them.
        let depth = |levels: u32| levels.saturating_add(1);
        match (path, request.levels) {
            ([], None) => CallersPart::Heavy,
            ([], Some(levels)) => CallersPart::Top(depth(levels)),
            ([top, ..], None) => CallersPart::HeavyOf(*top),
            ([top, ..], Some(levels)) => {
                let above = u32::try_from(path.len()).unwrap_or(u32::MAX);
                CallersPart::Of(*top, depth(levels).saturating_add(above))
            }
        }
    }
}

/// Makes a tree of changed stacks, or of a part of the callers.
pub(crate) fn changed_tree(
    selected: &Selected,
    events: &[usize],
    changes: &Changes,
    (callers, focus, part): (bool, Option<FunctionId>, CallersPart),
) -> ChangedTree {
    let (leaf, depth, least) = match part {
        CallersPart::Heavy if callers && focus.is_none() => (None, u32::MAX, LEAST),
        CallersPart::Heavy => (None, u32::MAX, 0),
        CallersPart::Top(depth) => (None, depth, 0),
        CallersPart::Of(leaf, depth) => (Some(leaf), depth, 0),
        CallersPart::HeavyOf(leaf) => (Some(leaf), u32::MAX, LEAST),
    };
    let options = ChangedTreeOptions {
        direction: match callers {
            true => TreeDirection::Callers,
            false => TreeDirection::Callees,
        },
        limits: TreeLimits {
            least,
            width: usize::MAX,
        },
        focus,
        leaf,
        depth,
    };
    let names = &selected.named().names;
    let changes = changes.stack_changes(selected);
    changed_call_tree(&selected.profile, names, events, &changes, &options)
}

/// The samples that a tree lost, as its answer has them; `None` if there are none.
pub(crate) fn lost(dropped: &[Count], bare: &[Count]) -> Option<FlameChanges> {
    let mut counts = dropped.iter().chain(bare);
    counts.any(|count| !count.is_zero()).then(|| FlameChanges {
        dropped_samples: dropped.iter().map(|count| count.samples).collect(),
        dropped_weight: dropped.iter().map(|count| count.weight).collect(),
        bare_samples: bare.iter().map(|count| count.samples).collect(),
        bare_weight: bare.iter().map(|count| count.weight).collect(),
    })
}

/// The kind of a module's code.
pub(crate) fn module_kind(module: &Module) -> FlameModuleKind {
    match module.kind {
        _ if module.is_unknown() => FlameModuleKind::Unknown,
        ModuleKind::File => FlameModuleKind::File,
        ModuleKind::Kernel => FlameModuleKind::Kernel,
        ModuleKind::Vdso => FlameModuleKind::Vdso,
        ModuleKind::NotAFile => FlameModuleKind::Jit,
    }
}
