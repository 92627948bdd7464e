//! Rows of tables: counts by function, module, process or thread.

use crate::counts::counter::Count;
use crate::naming::names::{FunctionName, Names};
use crate::processes::modules::ModuleId;
use crate::profile::{EventProfile, Profile};
use crate::rows::hierarchy::{HierarchyOptions, hierarchy};
use crate::rows::paths::Paths;
use crate::stacks::call_stacks::Stacks;
use crate::stacks::frames::FrameId;
use std::collections::BTreeMap;

/// The kind of thing that a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dimension {
    /// A function of a module over all processes.
    Function,
    /// A module over all processes.
    Module,
    /// A program: all processes of one executable, each while it ran that executable.
    Program,
    /// A process.
    Process,
    /// A thread.
    Thread,
    /// A name that threads had at the time of their samples; `u32::MAX` for threads without a name.
    Comm,
    /// A CPU.
    Cpu,
    /// A socket; `u32::MAX` for CPUs whose socket is not known.
    Socket,
    /// A basic block, as the caller defines it; see [`crate::HierarchyOptions::blocks`].
    Block,
    /// A slice of time; see [`crate::HierarchyOptions::slices`].
    Time,
    /// A place in a module.
    Address,
    /// A line of a source file. Inlined code counts at its own line.
    Line,
    /// A line of a source file. Inlined code counts at the line of the call that it replaced, in the function whose
    /// code it is.
    OutermostLine,
}

/// The counts at a place itself, and at the place or anything it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfAndTotal {
    /// At the place itself.
    pub own: Count,
    /// At the place or anything it called; a recursive function counts each sample once. Without loaded stacks it
    /// equals `own`, except for functions inlined into the function.
    pub total: Count,
}

/// One row: its key, and its counts for each event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateRow {
    /// The id of a function, module, process, thread, frame or line, or a CPU's number (`u32::MAX` for samples without
    /// a CPU), according to the dimension.
    pub key: u32,
    /// The counts, in the order of the events asked for.
    pub counts: Vec<SelfAndTotal>,
}

/// Returns the rows of `profile` along `dimension` with counts of `events` (indices of [`Profile::events`]). Rows
/// without any count are left out. Rows are in the order of their keys.
///
/// Programs, processes, names and threads need [`crate::LoadOptions::threads`], and CPUs and sockets need
/// [`crate::LoadPlan::cpus`]; without these there are no rows. Blocks and time work only with [`hierarchy`]. Lines need
/// [`Names::find_lines`]. Where [`Names::find_debug_info`] was asked for inlined functions, these have rows of their
/// own. A function's own count then excludes the functions inlined into it.
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
            // The other dimensions have returned above.
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

/// Returns the rows of CPUs. Their numbers may have gaps, and a hostile file may have numbers of any size.
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
    /// Returns the row of samples taken at a frame.
    fn own(&self, frame: FrameId) -> u32;
    /// Calls `visit` with each row of a frame, innermost first. The frame executes itself or has called `callee`.
    fn each(&self, frame: FrameId, callee: Option<FrameId>, visit: impl FnMut(u32));
}

/// A key that gives one row for each frame.
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

/// The functions at a frame, including inlined functions where they are known.
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
    // The last visit that saw each key, so that a function that calls itself counts once in its stack.
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
    // The last path that saw each function.
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

/// Returns the counts without a function name, by module. Modules with such samples are ordered by their ids.
///
/// `names` must be those of `profile`.
pub fn unresolved(profile: &Profile, names: &Names, events: &[usize]) -> Vec<(ModuleId, Count)> {
    let functions = names.functions().iter();
    let nameless: Vec<bool> = functions.map(FunctionName::is_nameless).collect();
    by_module_where(profile, events, |frame| {
        nameless[names.of_frame(frame) as usize]
    })
}

/// Returns the counts without a source line, by module. Modules with such samples are ordered by their ids.
///
/// `names` must be those of `profile`, with lines.
pub fn without_line(profile: &Profile, names: &Names, events: &[usize]) -> Vec<(ModuleId, Count)> {
    by_module_where(profile, events, |frame| {
        names.lines()[names.line_of(frame) as usize].file.is_none()
    })
}

/// Returns the counts without debug information, whose inlined functions are therefore not known, by module. Modules
/// with such samples are ordered by their ids. The list is empty unless inlined functions were asked for.
///
/// `names` must be those of `profile`.
pub fn undescribed(profile: &Profile, names: &Names, events: &[usize]) -> Vec<(ModuleId, Count)> {
    by_module_where(profile, events, |frame| names.is_undescribed(frame))
}

/// Returns the counts of samples whose call chains end at the thunks of a function tracer of this project. Such a chain
/// was found by a method that does not lead to the callers, because the tracer keeps their addresses elsewhere than on
/// the stack. Where a method does lead to them, the thunks are left out
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
    let ends = profile.ends_at_thunk.get_or_init(|| {
        let stacks = profile.stacks();
        let mut ends = vec![false; stacks.len()];
        // The stacks of callers have smaller ids than those of their callees.
        for id in 1..stacks.len() {
            let node = stacks.get(id as u32);
            ends[id] = match node.parent {
                Stacks::ROOT => modules[profile.frames().get(node.frame).module as usize],
                caller => ends[caller as usize],
            };
        }
        ends
    });
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
        for (frame, count) in profile.own_by_frame(event) {
            if wanted(*frame) {
                modules[profile.frames().get(*frame).module as usize].add(*count);
            }
        }
    }
    (0..)
        .zip(modules)
        .filter(|(_, count)| !count.is_zero())
        .collect()
}
