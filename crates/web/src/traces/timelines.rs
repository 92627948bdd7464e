//! `/api/trace/timeline`: the calls of each thread as nested bars.

use super::bars::BarMaker;
use super::interned::Interned;
use super::loaded::OpenTrace;
use super::selected::{CallsKey, selected, thread_keys, view};
use super::tables::add_truncated;
use crate::api::{
    CallLane, CallSelection, CallTimelineAnswer, CallTimelineRequest, FactAnswer, FlameFunction,
    FlameModule,
};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::server::Shared;
use crate::texts;
use dioptra_calls::{View, ViewLosses};
use dioptra_trace_report::call_facts;

/// The largest width of a picture in pixels.
const MOST_PIXELS: u32 = 8000;
/// The largest number of lanes in an answer.
const MOST_LANES: usize = 200;
/// The largest number of levels.
const MOST_DEPTH: u32 = 512;
/// The largest number of bars in an answer.
const MOST_BARS: usize = 150_000;

/// Which picture: the key of pictures that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TileKey {
    pub calls: CallsKey,
    span: (u64, u64),
    pixels: u32,
    depth: u32,
    from: usize,
    count: usize,
}

/// A part of a timeline.
pub(crate) struct Tile {
    lanes: Vec<CallLane>,
    total_lanes: usize,
    functions: Vec<FlameFunction>,
    modules: Vec<FlameModule>,
    facts: Vec<FactAnswer>,
}

impl MemorySize for Tile {
    fn bytes(&self) -> usize {
        let bars = self.lanes.iter().map(|lane| lane.bars.start.len());
        1 + 29 * bars.sum::<usize>() + 200 * (self.functions.len() + self.lanes.len())
    }
}

/// The places of each thread's streams in a view, in the order in which the threads began. A thread whose process executed
/// another program has several.
fn lanes(view: &View<'_>) -> Vec<((u32, u32), Vec<usize>)> {
    let mut lanes: Vec<((u32, u32), Vec<usize>)> = Vec::new();
    let mut places = hashbrown::HashMap::new();
    for (place, stream) in view.streams().iter().enumerate() {
        let task = (stream.pid, stream.tid);
        let lane = *places.entry(task).or_insert_with(|| {
            lanes.push((task, Vec::new()));
            lanes.len() - 1
        });
        lanes[lane].1.push(place);
    }
    lanes
}

fn make(
    open: &OpenTrace<'_>,
    key: &TileKey,
    selection: &CallSelection,
    ticket: &Ticket,
) -> Result<Tile, Failure> {
    let (from, to) = key.span;
    let selection = CallSelection {
        time: Some((Some(from), Some(to))),
        ..selection.clone()
    };
    let view = view(open, &selection, false)?;
    let lanes = lanes(&view);
    let pixel = (to - from) as f64 / f64::from(key.pixels);
    let mut interned = Interned::new(open);
    let mut losses = ViewLosses::default();
    let mut room = MOST_BARS;
    let mut made = Vec::new();
    for ((pid, tid), places) in lanes.iter().skip(key.from).take(key.count) {
        ticket.check()?;
        let mut maker = BarMaker::new(view.range(), pixel, key.depth, room);
        for place in places {
            losses += maker.take(view.calls(*place), ticket)?;
        }
        let (calls, levels) = (maker.calls, maker.levels);
        let (bars, left_out) = maker.bars(open.first, &mut interned);
        room -= bars.start.len();
        let last = places.last().copied().unwrap_or_default();
        made.push(CallLane {
            key: thread_keys(*pid, *tid),
            name: texts::name(view.task_name(last)),
            tid: *tid,
            pid: *pid,
            calls,
            levels,
            left_out,
            bars,
        });
    }
    let mut facts = call_facts(open.trace, &open.names, &losses);
    add_truncated(open, &mut facts);
    Ok(Tile {
        lanes: made,
        total_lanes: lanes.len(),
        functions: interned.functions,
        modules: interned.modules,
        facts: texts::facts(&facts),
    })
}

/// Answers `/api/trace/timeline`.
pub(crate) fn answer(
    shared: &Shared,
    request: &CallTimelineRequest,
    ticket: &Ticket,
) -> Result<CallTimelineAnswer, Failure> {
    let (loaded, calls) = selected(shared, &request.selection)?;
    let time = request.span.or(request.selection.time).unwrap_or_default();
    let end = loaded.duration.saturating_add(1);
    let (from, to) = (time.0.unwrap_or(0), time.1.unwrap_or(end));
    if from >= to {
        return Err(Failure::parameter("span", "begins behind the trace's end"));
    }
    let pixels = request.pixels.unwrap_or(1000);
    if !(1..=MOST_PIXELS).contains(&pixels) {
        return Err(Failure::parameter(
            "pixels",
            format!("is 1 to {MOST_PIXELS}"),
        ));
    }
    let key = TileKey {
        calls: CallsKey {
            request: CallSelection {
                time: None,
                ..calls.request
            },
            ..calls
        },
        span: (from, to),
        pixels,
        depth: request.depth.unwrap_or(64).min(MOST_DEPTH),
        from: request.from.unwrap_or(0),
        count: request.count.unwrap_or(20).min(MOST_LANES),
    };
    let tile = shared.tiles.get(key.clone(), || {
        let (key, selection, ticket) = (key.clone(), request.selection.clone(), ticket.clone());
        loaded.run(move |open| make(open, &key, &selection, &ticket))
    })?;
    Ok(CallTimelineAnswer {
        profile: loaded.index,
        generation: loaded.generation,
        start_ns: from,
        end_ns: to,
        pixel_ns: (to - from) as f64 / f64::from(pixels),
        functions: tile.functions.clone(),
        modules: tile.modules.clone(),
        lanes: tile.lanes.clone(),
        total_lanes: tile.total_lanes,
        facts: tile.facts.clone(),
    })
}
