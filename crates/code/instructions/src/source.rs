//! Which source lines a function's instructions belong to.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::function::FunctionCode;
use dioptra_symbols::{Frame, LineReader, RelativeAddress};

/// To which of the lines of an inline chain an instruction is credited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Credit {
    /// The line that the instruction was made from, wherever it stands.
    #[default]
    Innermost,
    /// The line in the function itself from which, by way of inlined calls, that was reached.
    Outermost,
}

/// The source lines and inline frames of each instruction of one function.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    /// For each instruction a chain.
    chains_of: Vec<u32>,
    /// Where each chain's frames lie.
    chains: Vec<Range<u32>>,
    frames: Vec<Frame>,
    unknown: usize,
}

/// A source line and the code that was made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineCode {
    /// The source file, with the directory it was compiled in.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// Its code, as relative addresses: rising, neither touching nor overlapping.
    pub addresses: Vec<Range<u64>>,
}

impl SourceMap {
    /// Asks for every instruction of a function.
    #[must_use]
    pub fn of(code: &FunctionCode, lines: &LineReader<'_>) -> Self {
        let mut map = Self {
            chains_of: Vec::with_capacity(code.len()),
            ..Self::default()
        };
        let mut known: FxHashMap<Vec<Key>, u32> = FxHashMap::default();
        for instruction in code.instructions() {
            let frames = lines.frames(RelativeAddress(instruction.address));
            let number = match map.chains_of.last() {
                Some(&last) if map.chain(last) == &frames[..] => last,
                _ => *known
                    .entry(frames.iter().map(Key::of).collect())
                    .or_insert_with(|| map.add(&frames)),
            };
            map.unknown += usize::from(frames.iter().all(|frame| frame.line.is_none()));
            map.chains_of.push(number);
        }
        map
    }

    fn add(&mut self, frames: &[Frame]) -> u32 {
        let from = self.frames.len() as u32;
        self.frames.extend_from_slice(frames);
        self.chains.push(from..self.frames.len() as u32);
        self.chains.len() as u32 - 1
    }

    fn chain(&self, number: u32) -> &[Frame] {
        let range = self.chains[number as usize].clone();
        &self.frames[range.start as usize..range.end as usize]
    }

    /// The functions that are executing at an instruction, innermost first; all but the last are inlined into
    /// the next. Empty if nothing is known.
    #[must_use]
    pub fn frames(&self, instruction: usize) -> &[Frame] {
        let number = self.chains_of.get(instruction);
        number.map_or(&[], |&number| self.chain(number))
    }

    /// The line that an instruction is credited to.
    #[must_use]
    pub fn line(&self, instruction: usize, credit: Credit) -> Option<(&Arc<str>, u32)> {
        line_of(self.frames(instruction), credit)
    }

    /// Returns the number of instructions without a line.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.unknown
    }

    /// All lines the function's code was made from, by file and line, each with its code.
    #[must_use]
    pub fn lines(&self, code: &FunctionCode, credit: Credit) -> Vec<LineCode> {
        let mut numbers: FxHashMap<(&Arc<str>, u32), usize> = FxHashMap::default();
        let mut lines: Vec<LineCode> = Vec::new();
        let line_of_chain: Vec<Option<usize>> = (0..self.chains.len() as u32)
            .map(|chain| {
                let (file, line) = line_of(self.chain(chain), credit)?;
                Some(*numbers.entry((file, line)).or_insert_with(|| {
                    lines.push(LineCode {
                        file: file.clone(),
                        line,
                        addresses: Vec::new(),
                    });
                    lines.len() - 1
                }))
            })
            .collect();
        for (instruction, &chain) in code.instructions().zip(&self.chains_of) {
            let Some(line) = line_of_chain[chain as usize] else {
                continue;
            };
            let end = instruction.address + instruction.bytes.len() as u64;
            let addresses = &mut lines[line].addresses;
            match addresses.last_mut() {
                Some(last) if last.end == instruction.address => last.end = end,
                _ => addresses.push(instruction.address..end),
            }
        }
        lines.sort_unstable_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        lines
    }

    /// Heap memory it holds, in bytes, without names that are shared.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.chains_of.capacity() * size_of::<u32>()
            + self.chains.capacity() * size_of::<Range<u32>>()
            + self.frames.capacity() * size_of::<Frame>()
    }
}

fn line_of(frames: &[Frame], credit: Credit) -> Option<(&Arc<str>, u32)> {
    let frame = match credit {
        Credit::Innermost => frames.first(),
        Credit::Outermost => frames.last(),
    }?;
    Some((frame.file.as_ref()?, frame.line?))
}

/// A key that tells frames apart. Names are shared, so their addresses suffice.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    function: usize,
    file: usize,
    line: Option<u32>,
    column: Option<u32>,
    is_inlined: bool,
}

impl Key {
    fn of(frame: &Frame) -> Self {
        let place =
            |name: &Option<Arc<str>>| name.as_ref().map_or(0, |name| name.as_ptr() as usize);
        Self {
            function: place(&frame.function),
            file: place(&frame.file),
            line: frame.line,
            column: frame.column,
            is_inlined: frame.is_inlined,
        }
    }
}
