//! `/api/trace/replay`, `/api/trace/find`: the calls in the order of time, a range of rows at a time.
//!
//! A trace may have billions of rows. One pass counts them and keeps the times of some, from which later requests begin. The
//! first rows need not wait for that pass: a request for a preview is answered without it.

use super::interned::Interned;
use super::loaded::{LoadedTrace, OpenTrace};
use super::rows::{CallRow, CallRows};
use super::selected::{CallsKey, selected, thread, view};
use super::tables::add_truncated;
use crate::api::{
    CallSelection, FactAnswer, ReplayAnswer, ReplayFindAnswer, ReplayFindRequest, ReplayKind,
    ReplayRequest, ReplayRow,
};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::filter::NameFilter;
use crate::jobs::Ticket;
use crate::server::Shared;
use crate::texts;
use dioptra_calls::View;
use dioptra_trace_report::{ending_text, replay_facts};
use hashbrown::HashMap;
use std::sync::Arc;

/// The largest number of rows in an answer.
const MOST_ROWS: usize = 2000;
/// The number of rows in an answer unless the request gives one.
const ROWS: usize = 200;
/// The first row of a preview at most: the rows before it are read, too.
const MOST_PREVIEWED: u64 = 10_000;
/// The number of rows between two marks, at least.
const STRIDE: u64 = 4096;
/// The rows between two looks at whether somebody still waits.
const LOOKS: u64 = 1 << 15;

/// Which rows: the key of marks that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowMarksKey {
    pub calls: CallsKey,
}

/// A row from which a reading can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowMark {
    /// The row's time in the clock's nanoseconds. No earlier row and no step that an earlier row covers has it.
    time: u64,
    /// The place of the row.
    row: u64,
}

/// The number of a selection's rows, and marks among them.
pub(crate) struct RowMarks {
    marks: Vec<RowMark>,
    total: u64,
    facts: Vec<FactAnswer>,
}

impl MemorySize for RowMarks {
    fn bytes(&self) -> usize {
        1 + 16 * self.marks.len() + 500 * self.facts.len()
    }
}

impl RowMarks {
    /// Counts the rows of a selection in one pass.
    fn of(
        open: &OpenTrace<'_>,
        selection: &CallSelection,
        ticket: &Ticket,
    ) -> Result<RowMarks, Failure> {
        let view = view(open, selection, true)?;
        let mut rows = CallRows::new(&view);
        let (mut marks, mut total) = (Vec::new(), 0_u64);
        let mut next = STRIDE;
        loop {
            let covered = rows.covered();
            let Some(row) = rows.next() else { break };
            if total >= next && row.time > covered {
                marks.push(RowMark {
                    time: row.time,
                    row: total,
                });
                next = total + STRIDE;
            }
            total += 1;
            if total.is_multiple_of(LOOKS) {
                ticket.check()?;
            }
        }
        let mut facts = replay_facts(&view, &open.names, &rows.losses());
        add_truncated(open, &mut facts);
        Ok(RowMarks {
            marks,
            total,
            facts: texts::facts(&facts),
        })
    }

    /// Returns the last mark at or before a row; none at the beginning.
    fn before_row(&self, row: u64) -> Option<RowMark> {
        let behind = self.marks.partition_point(|mark| mark.row <= row);
        self.marks.get(behind.checked_sub(1)?).copied()
    }

    /// Returns the last mark before a time; none at the beginning.
    fn before_time(&self, time: u64) -> Option<RowMark> {
        let behind = self.marks.partition_point(|mark| mark.time < time);
        self.marks.get(behind.checked_sub(1)?).copied()
    }
}

/// Returns the marks of a selection.
fn marks(
    shared: &Shared,
    loaded: &LoadedTrace,
    calls: CallsKey,
    ticket: &Ticket,
) -> Result<Arc<RowMarks>, Failure> {
    let key = RowMarksKey { calls };
    shared.row_marks.get(key.clone(), || {
        let (selection, ticket) = (key.calls.request, ticket.clone());
        loaded.run(move |open| RowMarks::of(open, &selection, &ticket))
    })
}

/// Returns the view that begins with a mark.
fn view_from<'t>(
    open: &OpenTrace<'t>,
    selection: &CallSelection,
    mark: Option<RowMark>,
) -> Result<View<'t>, Failure> {
    let Some(mark) = mark else {
        return view(open, selection, true);
    };
    let (_, to) = selection.time.unwrap_or_default();
    let selection = CallSelection {
        time: Some((Some(open.since_first(mark.time)), to)),
        ..selection.clone()
    };
    view(open, &selection, true)
}

/// Returns the place of the first row from a mark on for which `is_it`.
fn find_row(
    open: &OpenTrace<'_>,
    selection: &CallSelection,
    mark: Option<RowMark>,
    ticket: &Ticket,
    mut is_it: impl FnMut(u64, &CallRow) -> bool,
) -> Result<Option<u64>, Failure> {
    let view = view_from(open, selection, mark)?;
    let mut place = mark.map_or(0, |mark| mark.row);
    for row in CallRows::new(&view) {
        if is_it(place, &row) {
            return Ok(Some(place));
        }
        place += 1;
        if place.is_multiple_of(LOOKS) {
            ticket.check()?;
        }
    }
    Ok(None)
}

/// Returns the rows of an answer.
fn range(
    open: &OpenTrace<'_>,
    selection: &CallSelection,
    mark: Option<RowMark>,
    from: u64,
    count: usize,
) -> Result<ReplayAnswer, Failure> {
    let view = view_from(open, selection, mark)?;
    let skipped = from.saturating_sub(mark.map_or(0, |mark| mark.row));
    let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let mut interned = Interned::new(open);
    let mut threads = Vec::new();
    let mut thread_places: HashMap<usize, u32> = HashMap::new();
    let mut rows = Vec::new();
    for row in CallRows::new(&view).skip(skipped).take(count) {
        let thread = *thread_places.entry(row.place).or_insert_with(|| {
            threads.push(thread(&view, row.place));
            threads.len() as u32 - 1
        });
        rows.push(ReplayRow {
            kind: row.kind,
            thread,
            depth: row.depth,
            function: row.function.map(|function| interned.function(function)),
            time_ns: open.since_first(row.time),
            begin_ns: row.began.map(|began| open.since_first(began)),
            duration_ns: row
                .began
                .zip(row.ended)
                .map(|(began, ended)| ended.saturating_sub(began)),
            note: note(open, &row),
        });
    }
    Ok(ReplayAnswer {
        profile: open.index,
        generation: open.generation,
        rows,
        from,
        total_rows: 0,
        counted: true,
        at_row: None,
        functions: interned.functions,
        modules: interned.modules,
        threads,
        facts: Vec::new(),
    })
}

/// Returns what is to be known about a row.
fn note(open: &OpenTrace<'_>, row: &CallRow) -> Option<String> {
    match row.kind {
        ReplayKind::Lost if row.lost == 0 => Some("some records are missing".to_owned()),
        ReplayKind::Lost => Some(format!("{} records are missing", row.lost)),
        ReplayKind::Event => {
            let entry = open.trace.function(row.function?);
            open.trace.task_name(&entry).map(texts::name)
        }
        _ => ending_text(row.ending?).map(str::to_owned),
    }
}

/// Returns rows near the beginning, without counting the rows behind them.
fn preview(
    loaded: &LoadedTrace,
    selection: CallSelection,
    from: u64,
    count: usize,
) -> Result<ReplayAnswer, Failure> {
    let answer = loaded.run(move |open| range(open, &selection, None, from, count))?;
    Ok(ReplayAnswer {
        total_rows: from.saturating_add(answer.rows.len() as u64),
        counted: false,
        ..answer
    })
}

/// Answers `/api/trace/replay`.
pub(crate) fn answer(
    shared: &Shared,
    request: &ReplayRequest,
    ticket: &Ticket,
) -> Result<ReplayAnswer, Failure> {
    let (loaded, calls) = selected(shared, &request.selection)?;
    let selection = calls.request.clone();
    let count = request.count.unwrap_or(ROWS).min(MOST_ROWS);
    if request.preview && request.at.is_none() {
        let key = RowMarksKey {
            calls: calls.clone(),
        };
        let from = request.from.unwrap_or(0);
        if shared.row_marks.known(&key).is_none() && from <= MOST_PREVIEWED {
            return preview(&loaded, selection, from, count);
        }
    }
    let marks = marks(shared, &loaded, calls, ticket)?;
    ticket.check()?;
    let at_row = match request.at {
        Some(at) => {
            let time = loaded.first.saturating_add(at);
            let (selection, ticket) = (selection.clone(), ticket.clone());
            let mark = marks.before_time(time);
            let found = loaded.run(move |open| {
                find_row(open, &selection, mark, &ticket, |_, row| row.time >= time)
            })?;
            Some(found.unwrap_or(marks.total))
        }
        None => None,
    };
    let from = request.from.or(at_row).unwrap_or(0).min(marks.total);
    let mark = marks.before_row(from);
    let answer = loaded.run(move |open| range(open, &selection, mark, from, count))?;
    Ok(ReplayAnswer {
        total_rows: marks.total,
        at_row,
        facts: marks.facts.clone(),
        ..answer
    })
}

/// Answers `/api/trace/find`.
pub(crate) fn find(
    shared: &Shared,
    request: &ReplayFindRequest,
    ticket: &Ticket,
) -> Result<ReplayFindAnswer, Failure> {
    let (loaded, calls) = selected(shared, &request.selection)?;
    let filter = NameFilter::new(&request.text, request.regex)?;
    let selection = calls.request.clone();
    let marks = marks(shared, &loaded, calls, ticket)?;
    ticket.check()?;
    let from = request.from.unwrap_or(0);
    let (mark, ticket) = (marks.before_row(from), ticket.clone());
    let row = loaded.run(move |open| {
        // Names are made only for functions that are called.
        let mut known: HashMap<u32, bool> = HashMap::new();
        find_row(open, &selection, mark, &ticket, |place, row| {
            let (ReplayKind::Call | ReplayKind::Enter, Some(function)) = (row.kind, row.function)
            else {
                return false;
            };
            place >= from
                && *known
                    .entry(function)
                    .or_insert_with(|| filter.passes(open.names.get(function)))
        })
    })?;
    Ok(ReplayFindAnswer { row })
}
