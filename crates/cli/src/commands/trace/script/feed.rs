//! The calls as a script's process reads them: frames of names and of records.
//!
//! The first line is JSON: [`About`](super::child::About). Frames follow: a byte for the kind, a number and a length, each
//! of four bytes, and that many bytes. `N` is a name with its number, `C` are records, `E` is the end. `V` is a JSON object
//! with the values of the record that has this number among the next records. A record has seven numbers: the kind of the step, thread, depth, the name's number, and in eight bytes each the time, the address and the
//! duration; of an event the last one is the number of its text.

use std::collections::HashMap;
use std::io::{self, Write};

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A call begins.
    Entry,
    /// A call ends.
    Exit,
    /// Something happened.
    Event,
}

/// A step, without its name.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub kind: StepKind,
    pub tid: u32,
    pub depth: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time: u64,
    pub address: u64,
    /// The nanoseconds that a call took.
    pub duration: u64,
}

/// The bytes of a record.
const RECORD: usize = 40;
/// The bytes of records in a frame, at most.
const FRAME: usize = RECORD * 4096;

/// A writer of frames.
pub struct Feed<W> {
    out: W,
    records: Vec<u8>,
    /// Frames of names and of values, which go before the records.
    names: Vec<u8>,
    /// The number of each name: functions by their ids, then texts.
    functions: HashMap<u32, u32>,
    texts: HashMap<String, u32>,
    next: u32,
}

impl<W: Write> Feed<W> {
    pub fn new(out: W) -> Feed<W> {
        Feed {
            out,
            records: Vec::with_capacity(FRAME),
            names: Vec::new(),
            functions: HashMap::new(),
            texts: HashMap::new(),
            next: 0,
        }
    }

    /// Adds a step of a function. `name` returns the function's name.
    pub fn call<'n>(
        &mut self,
        step: Step,
        function: u32,
        name: impl FnOnce() -> &'n str,
    ) -> io::Result<()> {
        let number = match self.functions.get(&function) {
            Some(number) => *number,
            None => {
                let number = self.add_name(name());
                self.functions.insert(function, number);
                number
            }
        };
        self.record(step, number, step.duration)
    }

    /// Adds values for the script to the record that comes next.
    pub fn values(&mut self, values: &serde_json::Value) {
        let text = values.to_string();
        let number = (self.records.len() / RECORD) as u32;
        push_head(&mut self.names, b'V', number, text.len());
        self.names.extend_from_slice(text.as_bytes());
    }

    /// Adds an event of this name, with a text.
    pub fn event(&mut self, step: Step, name: &str, text: &str) -> io::Result<()> {
        let (name, text) = (self.text(name), self.text(text));
        self.record(step, name, u64::from(text))
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.add_name(text);
        self.texts.insert(text.to_owned(), number);
        number
    }

    fn add_name(&mut self, name: &str) -> u32 {
        let number = self.next;
        self.next += 1;
        push_head(&mut self.names, b'N', number, name.len());
        self.names.extend_from_slice(name.as_bytes());
        number
    }

    fn record(&mut self, step: Step, name: u32, last: u64) -> io::Result<()> {
        let kind = match step.kind {
            StepKind::Entry => 0_u32,
            StepKind::Exit => 1,
            StepKind::Event => 2,
        };
        for number in [kind, step.tid, step.depth, name] {
            self.records.extend_from_slice(&number.to_le_bytes());
        }
        for number in [step.time, step.address, last] {
            self.records.extend_from_slice(&number.to_le_bytes());
        }
        match self.records.len() < FRAME {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.names)?;
        self.names.clear();
        if !self.records.is_empty() {
            let mut head = Vec::with_capacity(9);
            push_head(&mut head, b'C', 0, self.records.len());
            self.out.write_all(&head)?;
            self.out.write_all(&self.records)?;
            self.records.clear();
        }
        Ok(())
    }

    /// Writes the end.
    pub fn end(mut self) -> io::Result<()> {
        self.flush()?;
        let mut head = Vec::with_capacity(9);
        push_head(&mut head, b'E', 0, 0);
        self.out.write_all(&head)
    }
}

fn push_head(out: &mut Vec<u8>, kind: u8, number: u32, length: usize) {
    out.push(kind);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_the_records_that_have_them() {
        let mut out = Vec::new();
        let mut feed = Feed::new(&mut out);
        let step = Step {
            kind: StepKind::Exit,
            tid: 7,
            depth: 2,
            time: 10,
            address: 0x20,
            duration: 3,
        };
        feed.call(step, 5, || "main").unwrap();
        feed.values(&serde_json::json!({ "retval": 1 }));
        feed.call(step, 5, || unreachable!("the name is known"))
            .unwrap();
        feed.event(step, "main", "").unwrap();
        feed.end().unwrap();
        let head = |kind: u8, number: u32, length: u32| {
            let mut head = vec![kind];
            head.extend(number.to_le_bytes());
            head.extend(length.to_le_bytes());
            head
        };
        let record = |name: u32, last: u64| {
            let mut record: Vec<u8> = Vec::new();
            for number in [1, 7, 2, name] {
                record.extend(u32::to_le_bytes(number));
            }
            for number in [10, 0x20, last] {
                record.extend(u64::to_le_bytes(number));
            }
            record
        };
        let expected = [
            head(b'N', 0, 4),
            b"main".to_vec(),
            head(b'V', 1, 12),
            br#"{"retval":1}"#.to_vec(),
            head(b'N', 1, 4),
            b"main".to_vec(),
            head(b'N', 2, 0),
            head(b'C', 0, 120),
            record(0, 3),
            record(0, 3),
            record(1, 2),
            head(b'E', 0, 0),
        ];
        assert_eq!(out, expected.concat());
    }
}
