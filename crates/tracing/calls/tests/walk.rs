//! Traces written by the writer, walked through.

use dioptra_calls::{CallEnding, Merge, StreamWalk, WalkStep};
use dioptra_tracedata::{ClockInfo, ClockPair, JournalEntry, Trace, TraceInfo, TraceWriter};
use dioptra_tracelayout::chunk::{self, records_offset};
use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::{ChunkHeader, Encoder, VERSION};
use proptest::prelude::*;
use std::path::Path;

/// The content of a chunk.
struct Piece {
    stream: u32,
    sequence: u32,
    lost: u64,
    depth: u32,
    open: Vec<u32>,
    base: u64,
    records: Vec<u8>,
}

fn piece(stream: u32, sequence: u32, base: u64, write: impl FnOnce(&mut Encoder)) -> Piece {
    let mut records = vec![0; 1 << 16];
    let mut encoder = Encoder::new(&mut records, 0, base);
    write(&mut encoder);
    let used = encoder.used();
    records.truncate(used);
    Piece {
        stream,
        sequence,
        lost: 0,
        depth: 0,
        open: Vec::new(),
        base,
        records,
    }
}

/// A trace of these chunks, whose ticks are nanoseconds.
fn trace(folder: &Path, pieces: &[Piece]) -> Trace {
    let pair = |ticks| ClockPair {
        ticks,
        monotonic: ticks,
    };
    let info = TraceInfo::new(ClockInfo::monotonic(0));
    let mut writer = TraceWriter::create(folder, &info).unwrap();
    writer.journal(&JournalEntry::Clock(pair(1 << 40))).unwrap();
    for piece in pieces {
        let header = ChunkHeader {
            magic: chunk::MAGIC,
            version: VERSION,
            stream: piece.stream,
            sequence: piece.sequence,
            lost: piece.lost as u32,
            base: piece.base,
            depth: piece.depth,
            open: piece.open.len() as u32,
            ..ChunkHeader::default()
        };
        let mut body = vec![0; records_offset(piece.open.len()) - chunk::HEADER_SIZE];
        for (place, id) in body.chunks_mut(4).zip(&piece.open) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        body.extend(&piece.records);
        writer.chunk(header, &body).unwrap();
    }
    Trace::open(folder).unwrap()
}

/// A step as a line: `10 +3` enters function 3, `20 -3 (10)` leaves it after 10 ns.
fn line(step: &WalkStep) -> String {
    let indented = |depth| "  ".repeat(depth as usize);
    match *step {
        WalkStep::Enter { time, call } => {
            format!("{time} {}+{}", indented(call.depth), call.function)
        }
        WalkStep::Leave { time, call, ending } => {
            let after = call
                .entered
                .map_or("?".into(), |entered| (time - entered).to_string());
            let how = match ending {
                CallEnding::Returned => "",
                CallEnding::Missing => " missing",
                _ => " unwound",
            };
            format!(
                "{time} {}-{} ({after}){how}",
                indented(call.depth),
                call.function
            )
        }
        WalkStep::Lost { time, records } => format!("{time} lost {records}"),
        WalkStep::Switch { time, stack } => format!("{time} stack {stack}"),
    }
}

fn walked(pieces: &[Piece]) -> Vec<String> {
    let parent = tempfile::tempdir().unwrap();
    let trace = trace(&parent.path().join("t"), pieces);
    StreamWalk::new(&trace, &trace.streams()[0])
        .map(|step| line(&step))
        .collect()
}

#[test]
fn calls_go_on_from_one_chunk_to_the_next() {
    let first = piece(1, 0, 10, |e| {
        e.entry(10, 1).unwrap();
        e.entry(11, 2).unwrap();
    });
    let mut second = piece(1, 1, 12, |e| {
        e.exit(13).unwrap();
        e.unwound(20, UnwindCause::Jump, 1).unwrap();
    });
    (second.depth, second.open) = (2, vec![1, 2]);
    assert_eq!(
        walked(&[first, second]),
        ["10 +1", "11   +2", "13   -2 (2)", "20 -1 (10) unwound"]
    );
}

#[test]
fn a_gap_is_told_and_open_calls_are_those_behind_it() {
    let first = piece(1, 0, 10, |e| {
        e.entry(10, 1).unwrap();
        e.entry(11, 2).unwrap();
        e.entry(12, 3).unwrap();
    });
    let mut second = piece(1, 1, 20, |e| {
        e.exit(21).unwrap();
        e.exit(22).unwrap();
    });
    (second.depth, second.open, second.lost) = (2, vec![1, 4], 7);
    assert_eq!(
        walked(&[first, second]),
        [
            "10 +1",
            "11   +2",
            "12     +3",
            "20 lost 7",
            "20     -3 (8) missing",
            "20   -2 (9) missing",
            "21   -4 (?)",
            "22 -1 (12)"
        ]
    );
}

#[test]
fn a_missing_chunk_is_a_gap_of_unknown_size() {
    let first = piece(1, 0, 10, |e| e.entry(10, 1).unwrap());
    let third = piece(1, 2, 20, |e| e.entry(20, 2).unwrap());
    assert_eq!(
        walked(&[first, third]),
        ["10 +1", "20 lost 0", "20 -1 (10) missing", "20 +2"]
    );
}

#[test]
fn of_very_deep_stacks_the_innermost_calls_are_listed() {
    let first = piece(1, 0, 0, |e| {
        for time in 0..5 {
            e.entry(time, 9).unwrap();
        }
    });
    let mut second = piece(1, 1, 5, |e| {
        for time in 5..10 {
            e.exit(time).unwrap();
        }
    });
    (second.depth, second.open) = (5, vec![9, 9]);
    let lines = walked(&[first, second]);
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[9], "9 -9 (9)");
    // The oldest chunks of a ring are gone: the callers are unknown, the depth is known.
    let mut only = piece(1, 7, 5, |e| {
        for time in 5..8 {
            e.exit(time).unwrap();
        }
    });
    (only.depth, only.open) = (5, vec![9, 9]);
    assert_eq!(
        walked(&[only]),
        ["5         -9 (?)", "6       -9 (?)", "7     -0 (?)"]
    );
}

#[test]
fn each_stack_of_a_thread_has_its_own_open_calls() {
    let all = piece(1, 0, 0, |e| {
        e.entry(1, 1).unwrap();
        e.stack(2, 5).unwrap();
        e.entry(3, 2).unwrap();
        e.stack(4, 0).unwrap();
        e.exit(5).unwrap();
        e.stack(6, 5).unwrap();
        e.exit(7).unwrap();
        e.exit(8).unwrap();
    });
    assert_eq!(
        walked(&[all]),
        [
            "1 +1",
            "2 stack 5",
            "3 +2",
            "4 stack 0",
            "5 -1 (4)",
            "6 stack 5",
            "7 -2 (4)"
        ]
    );
}

#[test]
fn chunks_begin_on_the_stack_that_they_name() {
    // A forked child of a coroutine: its parent's calls on that stack are open.
    let mut child = piece(1, 0, 0, |e| {
        e.stack(0, 5).unwrap();
        e.entry(1, 2).unwrap();
    });
    (child.depth, child.open) = (1, vec![9]);
    // The next chunk is lost, and with it the switch back to the first stack, which only the later chunk's list
    // reveals.
    let mut later = piece(1, 2, 20, |e| e.exit(21).unwrap());
    (later.depth, later.open) = (1, vec![7]);
    assert_eq!(
        walked(&[child, later]),
        [
            "0 stack 5",
            "1   +2",
            "20 lost 0",
            "20 stack 0",
            "21 -7 (?)"
        ]
    );
}

#[test]
fn streams_are_merged_by_time() {
    let parent = tempfile::tempdir().unwrap();
    let calls = |stream: u32, times: &[u64]| {
        let times = times.to_vec();
        piece(stream, 0, 0, move |e| {
            for time in times {
                e.entry(time, stream).unwrap();
            }
        })
    };
    let pieces = [
        calls(1, &[1, 4, 5, 9]),
        calls(2, &[2, 3, 5, 6]),
        calls(3, &[7]),
    ];
    let trace = trace(&parent.path().join("t"), &pieces);
    let walks = trace
        .streams()
        .iter()
        .map(|s| StreamWalk::new(&trace, s))
        .collect();
    let mut merged = Merge::new(walks);
    let mut order = Vec::new();
    while let Some((place, step)) = merged.next() {
        order.push((step.time(), place));
        if step.time() == 4 {
            let next = merged.peek().map(|(place, step)| (*place, step.time()));
            assert_eq!(next, Some((0, 5)));
        }
    }
    assert_eq!(
        order,
        [
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 0),
            (5, 0),
            (5, 1),
            (6, 1),
            (7, 2),
            (9, 0)
        ]
    );
}

/// An act of a thread, and the step that a walk gives for it.
#[derive(Clone, Debug)]
enum Act {
    Enter(u32),
    Exit,
    Unwind(u32),
}

/// A chunk in the making: its base, the calls that were open, and the acts with their times.
type Making = (u64, Vec<u32>, Vec<(u64, Act)>);

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1..100_000_u32).prop_map(Act::Enter),
        2 => Just(Act::Exit),
        1 => (1..4_u32).prop_map(Act::Unwind),
    ]
}

proptest! {
    #[test]
    fn every_call_is_told_as_it_was_made(
        acts in prop::collection::vec((0..100_000_u64, act()), 0..200),
        cuts in prop::collection::vec(any::<bool>(), 200),
    ) {
        let mut expected = Vec::new();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut stack: Vec<(u32, u64)> = Vec::new();
        let mut time = 0;
        let mut current: Option<Making> = None;
        let finish = |making: Option<Making>, pieces: &mut Vec<Piece>| {
            let Some((base, open, acts)) = making else { return };
            let mut new = piece(1, pieces.len() as u32, base, |e| {
                for (time, act) in acts {
                    match act {
                        Act::Enter(function) => e.entry(time, function).unwrap(),
                        Act::Exit => e.exit(time).unwrap(),
                        Act::Unwind(n) => e.unwound(time, UnwindCause::Jump, n).unwrap(),
                    }
                }
            });
            new.depth = open.len() as u32;
            new.open = open;
            pieces.push(new);
        };
        for ((delta, act), cut) in acts.into_iter().zip(cuts) {
            time += delta;
            let act = match act {
                Act::Exit if stack.is_empty() => continue,
                Act::Unwind(n) if (n as usize) > stack.len() => continue,
                act => act,
            };
            if cut || current.is_none() {
                finish(current.take(), &mut pieces);
                current = Some((time, stack.iter().map(|call| call.0).collect(), Vec::new()));
            }
            match act {
                Act::Enter(function) => {
                    expected.push(format!("{time} {}+{function}", "  ".repeat(stack.len())));
                    stack.push((function, time));
                }
                Act::Exit | Act::Unwind(_) => {
                    let (count, how) = match act {
                        Act::Unwind(n) => (n, " unwound"),
                        _ => (1, ""),
                    };
                    for _ in 0..count {
                        let (function, entered) = stack.pop().unwrap();
                        let indent = "  ".repeat(stack.len());
                        expected.push(format!("{time} {indent}-{function} ({}){how}", time - entered));
                    }
                }
            }
            current.as_mut().unwrap().2.push((time, act));
        }
        finish(current, &mut pieces);
        if !pieces.is_empty() {
            prop_assert_eq!(walked(&pieces), expected);
        }
    }

    #[test]
    fn any_bytes_are_walked(
        depth: u32,
        open in prop::collection::vec(any::<u32>(), 0..4),
        records in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut hostile = piece(1, 3, 0, |_| {});
        hostile.depth = depth.max(open.len() as u32);
        hostile.open = open;
        hostile.records = records;
        let parent = tempfile::tempdir().unwrap();
        let trace = trace(&parent.path().join("t"), &[hostile]);
        let walk = StreamWalk::new(&trace, &trace.streams()[0]);
        prop_assert!(walk.map(|step| step.time()).is_sorted());
    }
}
