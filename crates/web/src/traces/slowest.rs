//! `/api/trace/slowest`: the slowest calls of one function.

use super::interned::function;
use super::loaded::OpenTrace;
use super::selected::{CallsKey, selected, thread_keys, view};
use crate::api::{CallSelection, FlameFunction, SlowCall, SlowestAnswer, SlowestRequest};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::server::Shared;
use crate::texts;
use dioptra_calls::{CallEnding, ShownStep};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of calls that are kept, and in an answer at most.
const MOST: usize = 500;
/// The number of calls in an answer unless the request gives one.
const CALLS: usize = 50;
/// The steps between two looks at whether somebody still waits.
const LOOKS: u32 = 1 << 16;

/// Which calls: the key of lists that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowestKey {
    pub calls: CallsKey,
    function: String,
}

/// The slowest calls of a function.
pub(crate) struct SlowestCalls {
    function: FlameFunction,
    calls: Vec<SlowCall>,
    total: u64,
}

impl MemorySize for SlowestCalls {
    fn bytes(&self) -> usize {
        1 + 150 * self.calls.len()
    }
}

/// A call that ended: its duration, beginning, place, self time, depth, and whether it had ended. Of equal ones the earlier
/// call is the slower one.
type Ended = (u64, Reverse<u64>, Reverse<usize>, u64, u32, bool);

fn make(
    open: &OpenTrace<'_>,
    key: &str,
    selection: &CallSelection,
    ticket: &Ticket,
) -> Result<SlowestCalls, Failure> {
    let ids = open.keys().find(key)?;
    let view = view(open, selection, false)?;
    let from = view.range().start.unwrap_or(0);
    // The quickest of the kept calls is on top.
    let mut kept: BinaryHeap<Reverse<Ended>> = BinaryHeap::with_capacity(MOST + 1);
    let mut total = 0_u64;
    let mut steps = 0_u32;
    for place in 0..view.streams().len() {
        for shown in view.calls(place) {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(LOOKS) {
                ticket.check()?;
            }
            let ShownStep::Leave {
                time,
                call,
                ending,
                own,
            } = shown
            else {
                continue;
            };
            if time < from || ids.binary_search(&call.function).is_err() {
                continue;
            }
            // A call whose beginning is not known has no duration.
            let Some(entered) = call.entered else {
                continue;
            };
            total += 1;
            let duration = time.saturating_sub(entered);
            let has_ended = ending != CallEnding::Open;
            let ended = (
                duration,
                Reverse(entered),
                Reverse(place),
                own,
                call.depth,
                has_ended,
            );
            kept.push(Reverse(ended));
            if kept.len() > MOST {
                kept.pop();
            }
        }
    }
    let calls = kept.into_sorted_vec().into_iter();
    let calls = calls.map(
        |Reverse((duration, Reverse(entered), Reverse(place), own, depth, ended))| {
            let stream = view.streams()[place];
            SlowCall {
                key: thread_keys(stream.pid, stream.tid),
                name: texts::name(view.task_name(place)),
                tid: stream.tid,
                begin_ns: open.since_first(entered),
                duration_ns: duration,
                self_ns: own,
                depth,
                ended,
            }
        },
    );
    Ok(SlowestCalls {
        function: function(open, ids.first().copied().unwrap_or_default(), 0),
        calls: calls.collect(),
        total,
    })
}

/// Answers `/api/trace/slowest`.
pub(crate) fn answer(
    shared: &Shared,
    request: &SlowestRequest,
    ticket: &Ticket,
) -> Result<SlowestAnswer, Failure> {
    let (loaded, calls) = selected(shared, &request.selection)?;
    let key = SlowestKey {
        calls,
        function: request.function.clone(),
    };
    let slowest = shared.slowest.get(key.clone(), || {
        let (key, ticket) = (key.clone(), ticket.clone());
        loaded.run(move |open| make(open, &key.function, &key.calls.request, &ticket))
    })?;
    let count = request.count.unwrap_or(CALLS).min(MOST);
    Ok(SlowestAnswer {
        profile: loaded.index,
        generation: loaded.generation,
        function: slowest.function.clone(),
        calls: slowest.calls.iter().take(count).cloned().collect(),
        total_calls: slowest.total,
    })
}
