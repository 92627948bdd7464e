//! Rows of tables: counts by function, module, process or thread.

use crate::counts::counter::Count;
use crate::naming::names::Names;
use crate::processes::modules::ModuleId;
use crate::profile::{EventProfile, Profile};
use crate::rows::hierarchy::{HierarchyOptions, hierarchy};
use crate::rows::paths::Paths;
use crate::stacks::call_stacks::Stacks;
use crate::stacks::frames::FrameId;
use std::collections::BTreeMap;

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dimension {
    /// A function of a module over all processes.
    Function,
    /// A module over all processes.
    Module,
    /// A program: all processes of one executable, each while it ran that.
    Program,
    /// A process.
    Process,
    /// A thread.
    Thread,
    /// A name of threads at the time of their samples; `u32::MAX` for threads without one.
    Comm,
    /// A CPU.
    Cpu,
    /// A socket; `u32::MAX` where a CPU's is not known.
    Socket,
    /// A basic block, as the caller tells; see [`crate::HierarchyOptions::blocks`].
    Block,
    /// A slice of time; see [`crate::HierarchyOptions::slices`].
    Time,
    /// A place in a module.
    Address,
    /// A line of a source file: of inlined code its own.
    Line,
    /// A line of a source file: of inlined code that of the call which it replaced, in the function whose code it is.
    OutermostLine,
}

/// Counts at a place itself, and at it or anything it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfAndTotal {
    /// At the place itself.
    pub own: Count,
    /// At it or anything it called; of a recursive function each sample once. Equals `own` where stacks were not
    /// loaded, but for what was inlined into the function.
    pub total: Count,
}

/// One row: what it stands for, and its counts for each event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateRow {
    /// A function, module, process, thread, frame or line id or a CPU's number (`u32::MAX` for samples that do not tell
    /// theirs), as the dimension says.
    pub key: u32,
    /// In the order of the events asked for.
    pub counts: Vec<SelfAndTotal>,
}

/// The rows of `profile` along `dimension` with counts of `events` (indices of [`Profile::events`]); rows without any
/// count are left out. Rows are in the order of their keys.
///
/// Programs, processes, names and threads need [`crate::LoadOptions::threads`], CPUs and sockets
/// [`crate::LoadPlan::cpus`], else there are no rows; blocks and time go with [`hierarchy`] only.
/// Lines need [`Names::find_lines`]. Functions that were inlined have rows of their own where
/// [`Names::find_debug_info`] was asked for them: then a function's own count is what is left without them.
pub fn aggregate(
    profile: &Profile,
    names: &Names,
    dimension: Dimension,
    events: &[usize],
) -> Vec<AggregateRow> {
    let tasks = profile.tasks();
    let keys = match dimension {
        Dimension::Function => names.functions().len(),
        Dimension::Module => profile.modules().len(),
        Dimension::Process => tasks.processes().len(),
        Dimension::Thread => tasks.threads().len(),
        Dimension::Address => profile.frames().len(),
        Dimension::Line | Dimension::OutermostLine => names.lines().len(),
        Dimension::Cpu => return by_cpu(profile, events),
        Dimension::Program
        | Dimension::Comm
        | Dimension::Socket
        | Dimension::Block
        | Dimension::Time => return one_level(profile, names, dimension, events),
    };
    let paths = (dimension == Dimension::Function && profile.options().call_chains)
        .then(|| Paths::fewer(profile, names))
        .flatten();
    let columns: Vec<Vec<SelfAndTotal>> = events
        .iter()
        .filter_map(|index| profile.events().get(*index))
        .map(|event| match dimension {
            Dimension::Function => match &paths {
                Some(paths) => by_path(profile, event, keys, paths),
                None => by_frame_key(profile, event, keys, &Functions(names)),
            },
            Dimension::Module => {
                let module = |frame| profile.frames().get(frame).module;
                by_frame_key(profile, event, keys, &One(module))
            }
            Dimension::Process => by_thread_key(profile, event, keys, |thread| {
                tasks.threads()[thread as usize].process
            }),
            Dimension::Thread => by_thread_key(profile, event, keys, |thread| thread),
            Dimension::Line => {
                by_frame_key(profile, event, keys, &One(|frame| names.line_of(frame)))
            }
            Dimension::OutermostLine => {
                let line = |frame| names.outermost_line_of(frame);
                by_frame_key(profile, event, keys, &One(line))
            }
            // The others went another way.
            _ => by_frame_key(profile, event, keys, &One(|frame| frame)),
        })
        .collect();
    (0..keys)
        .filter(|key| {
            columns
                .iter()
                .any(|column| !column[*key].own.is_zero() || !column[*key].total.is_zero())
        })
        .map(|key| AggregateRow {
            // Keys are ids, which fit.
            key: u32::try_from(key).unwrap_or(u32::MAX),
            counts: columns.iter().map(|column| column[key]).collect(),
        })
        .collect()
}

fn one_level(
    profile: &Profile,
    names: &Names,
    dimension: Dimension,
    events: &[usize],
) -> Vec<AggregateRow> {
    let found = hierarchy(
        profile,
        names,
        &[dimension],
        events,
        &HierarchyOptions::default(),
    );
    let found = found.unwrap_or_default();
    let counts = |row| {
        (0..events.len())
            .map(|event| found.count(row, event))
            .collect()
    };
    found
        .rows()
        .enumerate()
        .map(|(index, row)| AggregateRow {
            key: row.key,
            counts: counts(index),
        })
        .collect()
}

/// CPUs' numbers may have gaps, and those of a hostile file any size.
fn by_cpu(profile: &Profile, events: &[usize]) -> Vec<AggregateRow> {
    let mut rows: BTreeMap<u32, Vec<SelfAndTotal>> = BTreeMap::new();
    for (column, event) in events.iter().enumerate() {
        let Some(event) = profile.events().get(*event) else {
            continue;
        };
        profile.cpus(event, |cpu, count| {
            let cells = rows
                .entry(cpu)
                .or_insert_with(|| vec![SelfAndTotal::default(); events.len()]);
            cells[column].own.add(count);
            cells[column].total.add(count);
        });
    }
    rows.into_iter()
        .map(|(key, counts)| AggregateRow { key, counts })
        .collect()
}

fn by_thread_key(
    profile: &Profile,
    event: &EventProfile,
    keys: usize,
    key_of: impl Fn(u32) -> u32,
) -> Vec<SelfAndTotal> {
    let mut column = vec![SelfAndTotal::default(); keys];
    profile.threads(event, |thread, count| {
        let cell = &mut column[key_of(thread) as usize];
        cell.own.add(count);
        cell.total.add(count);
    });
    column
}

/// The rows to which a frame belongs.
trait FrameKeys {
    /// The row of samples taken at a frame.
    fn own(&self, frame: FrameId) -> u32;
    /// Calls `visit` with each row of a frame, innermost first, which executes itself or has called `callee`.
    fn each(&self, frame: FrameId, callee: Option<FrameId>, visit: impl FnMut(u32));
}

/// One row for each frame.
struct One<F>(F);

impl<F: Fn(FrameId) -> u32> FrameKeys for One<F> {
    #[inline]
    fn own(&self, frame: FrameId) -> u32 {
        (self.0)(frame)
    }

    #[inline]
    fn each(&self, frame: FrameId, _callee: Option<FrameId>, mut visit: impl FnMut(u32)) {
        visit((self.0)(frame));
    }
}

/// The functions at a frame, inlined ones too where they are known.
struct Functions<'a>(&'a Names);

impl FrameKeys for Functions<'_> {
    #[inline]
    fn own(&self, frame: FrameId) -> u32 {
        self.0.chain_of(frame, None)[0]
    }

    #[inline]
    fn each(&self, frame: FrameId, callee: Option<FrameId>, mut visit: impl FnMut(u32)) {
        for function in self.0.chain_of(frame, callee) {
            visit(*function);
        }
    }
}

fn by_frame_key(
    profile: &Profile,
    event: &EventProfile,
    keys: usize,
    keys_of: &impl FrameKeys,
) -> Vec<SelfAndTotal> {
    let mut column = vec![SelfAndTotal::default(); keys];
    // Which visit saw a key last: a function that calls itself counts once in its stack.
    let mut seen = vec![u32::MAX; keys];
    let mut visit = 0;
    let mut add_total = |column: &mut [SelfAndTotal], key: u32, visit: u32, count| {
        let key = key as usize;
        if seen[key] != visit {
            seen[key] = visit;
            column[key].total.add(count);
        }
    };
    if !profile.options().call_chains {
        profile.places(event, |frame, count| {
            visit += 1;
            column[keys_of.own(frame) as usize].own.add(count);
            keys_of.each(frame, None, |key| add_total(&mut column, key, visit, count));
        });
        return column;
    }
    profile.places(event, |stack, count| {
        visit += 1;
        let leaf = profile.leaf(stack);
        column[keys_of.own(leaf) as usize].own.add(count);
        let mut callee = None;
        let mut at = stack;
        while at != Stacks::ROOT {
            let node = profile.stacks().get(at);
            keys_of.each(node.frame, callee, |key| {
                add_total(&mut column, key, visit, count);
            });
            callee = Some(node.frame);
            at = node.parent;
        }
    });
    column
}

fn by_path(
    profile: &Profile,
    event: &EventProfile,
    keys: usize,
    paths: &Paths,
) -> Vec<SelfAndTotal> {
    let mut column = vec![SelfAndTotal::default(); keys];
    // Which path saw a function last.
    let mut seen = vec![0; keys];
    for (path, count) in paths.counts(profile, event) {
        if path == 0 {
            continue;
        }
        column[paths.get(path).function as usize].own.add(count);
        let mut at = path;
        while at != 0 {
            let node = paths.get(at);
            let function = node.function as usize;
            if seen[function] != path {
                seen[function] = path;
                column[function].total.add(count);
            }
            at = node.parent;
        }
    }
    column
}

/// How much of each module could not be named: modules with such samples, by their ids.
///
/// `names` must be those of `profile`.
pub fn unresolved(profile: &Profile, names: &Names, events: &[usize]) -> Vec<(ModuleId, Count)> {
    by_module_where(profile, events, |frame| {
        names.functions()[names.of_frame(frame) as usize].is_nameless()
    })
}

/// How much of each module has no source line: modules with such samples, by their ids.
///
/// `names` must be those of `profile`, with lines.
pub fn without_line(profile: &Profile, names: &Names, events: &[usize]) -> Vec<(ModuleId, Count)> {
    by_module_where(profile, events, |frame| {
        names.lines()[names.line_of(frame) as usize].file.is_none()
    })
}

/// How much of each module has no debug information, so that its inlined functions are not known: modules with such
/// samples, by their ids. Empty unless they were asked for.
///
/// `names` must be those of `profile`.
pub fn undescribed(profile: &Profile, names: &Names, events: &[usize]) -> Vec<(ModuleId, Count)> {
    by_module_where(profile, events, |frame| names.is_undescribed(frame))
}

/// How much has call chains that end at the thunks of a function tracer of this project, since what they were found by does
/// not lead to the callers, whose addresses are kept elsewhere than on the stack. Where it does, thunks are left out
/// ([`Losses::through_thunks`](crate::Losses::through_thunks)).
pub fn traced(profile: &Profile, events: &[usize]) -> Count {
    let mut through = Count::default();
    let modules: Vec<bool> = profile
        .modules()
        .iter()
        .map(|module| module.holds_thunks())
        .collect();
    if !profile.options().call_chains || !modules.contains(&true) {
        return through;
    }
    let stacks = profile.stacks();
    let mut ends = vec![false; stacks.len()];
    // Callers' stacks come before those of what they call.
    for id in 1..stacks.len() {
        let node = stacks.get(id as u32);
        ends[id] = match node.parent {
            Stacks::ROOT => modules[profile.frames().get(node.frame).module as usize],
            caller => ends[caller as usize],
        };
    }
    let known = events.iter().filter_map(|at| profile.events().get(*at));
    for event in known {
        profile.places(event, |stack, count| {
            if ends[stack as usize] {
                through.add(count);
            }
        });
    }
    through
}

fn by_module_where(
    profile: &Profile,
    events: &[usize],
    wanted: impl Fn(FrameId) -> bool,
) -> Vec<(ModuleId, Count)> {
    let mut modules = vec![Count::default(); profile.modules().len()];
    for event in events
        .iter()
        .filter_map(|index| profile.events().get(*index))
    {
        profile.places(event, |place, count| {
            let frame = profile.leaf(place);
            if wanted(frame) {
                modules[profile.frames().get(frame).module as usize].add(count);
            }
        });
    }
    (0..)
        .zip(modules)
        .filter(|(_, count)| !count.is_zero())
        .collect()
}
