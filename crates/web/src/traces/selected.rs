//! The calls that a request is about.

use super::loaded::{LoadedTrace, OpenTrace};
use crate::api::{CallSelection, RowKeys, TraceThread};
use crate::failure::Failure;
use crate::server::Shared;
use crate::texts;
use dioptra_calls::{Scheduling, TimeRange, View, ViewSelection};
use dioptra_tracedata::Trace;
use std::sync::Arc;

/// Which calls are selected: a part of the keys of kept answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallsKey {
    pub profile: usize,
    pub generation: u64,
    pub request: CallSelection,
}

/// Returns the trace of a request, and the key of its selection.
pub(crate) fn selected(
    shared: &Shared,
    request: &CallSelection,
) -> Result<(Arc<LoadedTrace>, CallsKey), Failure> {
    let loaded = shared.profiles.trace(request.profile, request.generation)?;
    let key = CallsKey {
        profile: loaded.index,
        generation: loaded.generation,
        request: CallSelection {
            profile: None,
            generation: None,
            ..request.clone()
        },
    };
    Ok((loaded, key))
}

/// A thread id that no thread has: without ids a view shows all threads.
const NOBODY: u32 = u32::MAX;

/// Returns the ids of the chosen threads; none for all.
fn threads(trace: &Trace, request: &CallSelection) -> Result<Vec<u32>, Failure> {
    let numbers = |what: &'static str, keys: &[String], known: &dyn Fn(u32) -> bool| {
        let each = keys.iter().map(|key| {
            let number = key.parse().ok().filter(|number| known(*number));
            number.ok_or_else(|| Failure::no_key(what, key))
        });
        each.collect::<Result<Vec<u32>, Failure>>()
    };
    let streams = trace.streams();
    let has_thread = |tid| streams.iter().any(|stream| stream.tid == tid);
    let has_process = |pid| {
        let mut processes = trace.processes().iter();
        streams.iter().any(|stream| stream.pid == pid) || processes.any(|known| known.pid == pid)
    };
    let tids = numbers("thread", &request.thread, &has_thread)?;
    let pids = numbers("process", &request.process, &has_process)?;
    if tids.is_empty() && pids.is_empty() {
        return Ok(Vec::new());
    }
    let is_chosen = |tid: u32, pid: u32| {
        (tids.is_empty() || tids.contains(&tid)) && (pids.is_empty() || pids.contains(&pid))
    };
    let chosen = streams
        .iter()
        .filter(|stream| is_chosen(stream.tid, stream.pid));
    let mut chosen: Vec<u32> = chosen.map(|stream| stream.tid).collect();
    chosen.sort_unstable();
    chosen.dedup();
    if chosen.is_empty() {
        chosen.push(NOBODY);
    }
    Ok(chosen)
}

/// Returns the view of a selection, as the commands show it without options: with the recording's rules, and with periods
/// without a CPU. `tasks` adds what happened to threads.
pub(crate) fn view<'t>(
    open: &OpenTrace<'t>,
    request: &CallSelection,
    tasks: bool,
) -> Result<View<'t>, Failure> {
    let (from, to) = request.time.unwrap_or_default();
    let selection = ViewSelection {
        scheduling: Scheduling {
            tasks,
            ..Scheduling::default()
        },
        tids: threads(open.trace, request)?,
        range: TimeRange {
            start: from.map(|from| open.first.saturating_add(from)),
            // The view's range has its last nanosecond.
            stop: to.map(|to| open.first.saturating_add(to.saturating_sub(1))),
        },
        seed: open.trace.info().seed.unwrap_or(0),
        ..ViewSelection::default()
    };
    View::new(&open.names, selection).map_err(|error| Failure::Internal(error.to_string()))
}

/// Returns the thread with index `place` in a view.
pub(crate) fn thread(view: &View<'_>, place: usize) -> TraceThread {
    let stream = view.streams()[place];
    TraceThread {
        key: thread_keys(stream.pid, stream.tid),
        name: texts::name(view.task_name(place)),
        tid: stream.tid,
        pid: stream.pid,
        bytes: stream.bytes,
        lost: stream.lost,
    }
}

/// Returns the values of selection parameters that select a thread.
pub(crate) fn thread_keys(pid: u32, tid: u32) -> RowKeys {
    RowKeys {
        process: Some(pid.to_string()),
        thread: Some(tid.to_string()),
        ..RowKeys::default()
    }
}
