//! Traces of threads that call library functions `f1`, `f2` and so on, written for a test.

use dioptra_calls::{Demangle, FunctionNames};
use dioptra_symbols::SymbolOptions;
use dioptra_tracedata::{ClockInfo, ClockPair, JournalEntry, Trace, TraceInfo, TraceWriter};
use dioptra_tracelayout::{ChunkHeader, Encoder, FunctionEntry, FunctionKind, VERSION, chunk};
use std::path::Path;

/// An act of a thread at a time in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Enter(u64, u32),
    Leave(u64),
    /// Goes on with another call stack.
    Stack(u64, u32),
}

/// Writes a trace of threads, each chunk with at most `most` acts, and opens it.
pub fn trace(folder: &Path, functions: u32, threads: &[Vec<Act>], most: usize) -> Trace {
    let pair = |time| ClockPair {
        ticks: time,
        monotonic: time,
    };
    let info = TraceInfo::new(ClockInfo::monotonic(0));
    let mut writer = TraceWriter::create(folder, &info).expect("a trace");
    writer
        .journal(&JournalEntry::Clock(pair(1 << 40)))
        .expect("a line");
    for function in 1..=functions {
        let name = format!("f{function}");
        let entry = FunctionEntry {
            module: 1,
            kind: FunctionKind::LibraryCall,
            method: 7,
            place: writer.names(name.as_bytes()).expect("a name"),
            size: name.len() as u32,
        };
        writer.functions(&[entry]).expect("a function");
    }
    for (thread, acts) in threads.iter().enumerate() {
        let mut open: Vec<u32> = Vec::new();
        let mut elsewhere: Vec<Vec<u32>> = vec![Vec::new(); 8];
        let mut stack = 0;
        let mut last = 0;
        for (sequence, part) in acts.chunks(most).enumerate() {
            let mut body: Vec<u8> = open.iter().flat_map(|id| id.to_le_bytes()).collect();
            body.resize(body.len().next_multiple_of(8), 0);
            let header = ChunkHeader {
                magic: chunk::MAGIC,
                version: VERSION,
                stream: thread as u32 + 1,
                sequence: sequence as u32,
                pid: 7,
                tid: 7 + thread as u32,
                base: last,
                depth: open.len() as u32,
                open: open.len() as u32,
                ..ChunkHeader::default()
            };
            let listed = body.len();
            body.resize(listed + (part.len() + 1) * 28, 0);
            let mut encoder = Encoder::new(&mut body[listed..], 0, last);
            if stack != 0 {
                // As tracers do: a chunk names the stack on which it begins.
                encoder.stack(last, stack).expect("room");
            }
            for act in part {
                let done = match *act {
                    Act::Enter(time, function) => {
                        open.push(function);
                        encoder.entry(time, function)
                    }
                    Act::Leave(time) => {
                        open.pop();
                        encoder.exit(time)
                    }
                    Act::Stack(time, next) => {
                        elsewhere[stack as usize] = std::mem::take(&mut open);
                        open = std::mem::take(&mut elsewhere[next as usize]);
                        stack = next;
                        encoder.stack(time, next)
                    }
                };
                done.expect("room");
            }
            last = encoder.time();
            let used = encoder.used();
            body.truncate(listed + used);
            writer.chunk(header, &body).expect("a chunk");
        }
    }
    drop(writer);
    Trace::open(folder).expect("a trace")
}

pub fn names(trace: &Trace) -> FunctionNames<'_> {
    FunctionNames::new(trace, SymbolOptions::default(), Demangle::Simple)
}

/// Makes numbers that look random.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// Acts of a thread: calls of `functions` functions, at most `deep`, the last ones maybe still open.
    pub fn acts(&mut self, count: usize, functions: u64, deep: usize, stacks: u32) -> Vec<Act> {
        let mut acts = Vec::with_capacity(count);
        let mut depths = vec![0; stacks as usize];
        let mut stack = 0;
        let mut time = 1_000 + self.below(100);
        for _ in 0..count {
            // Now and then long, so that durations differ by orders of magnitude.
            time += match self.below(40) {
                0 => self.below(20_000),
                1..8 => self.below(500),
                _ => self.below(20),
            };
            let depth: &mut usize = &mut depths[stack as usize];
            if stacks > 1 && self.below(12) == 0 {
                stack = self.below(u64::from(stacks)) as u32;
                acts.push(Act::Stack(time, stack));
            } else if *depth > 0 && (*depth == deep || self.below(2) == 0) {
                *depth -= 1;
                acts.push(Act::Leave(time));
            } else {
                *depth += 1;
                acts.push(Act::Enter(time, 1 + self.below(functions) as u32));
            }
        }
        acts
    }
}
