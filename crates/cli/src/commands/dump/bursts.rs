//! Bursts of windows: the file has them in a section; `dump` shows them among the records of their time.

use super::{Sink, Value};
use dioptra_windows::section::{Burst, BurstOutcome, WindowsSection};
use std::io;

/// The name of a burst among the names of records.
pub const BURST: &str = "BURST";

/// The bursts that are not shown yet.
pub struct Bursts<'d> {
    bursts: &'d [Burst],
    /// Indices by the time at which the bursts were armed, the latest first.
    order: Vec<u32>,
}

impl<'d> Bursts<'d> {
    pub fn new(windows: Option<&'d WindowsSection>) -> Self {
        let bursts = windows.map_or(&[][..], |windows| &windows.bursts);
        let mut order: Vec<u32> = (0_u32..).zip(bursts).map(|(index, _)| index).collect();
        order.sort_by_key(|index| std::cmp::Reverse(bursts[*index as usize].armed));
        Bursts { bursts, order }
    }

    /// Shows the bursts that were armed up to `time`.
    pub fn push_until(&mut self, time: u64, sink: &mut impl Sink) -> io::Result<()> {
        while let Some(index) = self.order.last() {
            let burst = &self.bursts[*index as usize];
            if burst.armed > time {
                break;
            }
            self.order.pop();
            push(burst, sink)?;
        }
        Ok(())
    }
}

fn push(burst: &Burst, sink: &mut impl Sink) -> io::Result<()> {
    sink.begin((Some(burst.armed), None), BURST)?;
    sink.field("group", Value::Number(burst.group.into()))?;
    if let Some(tid) = burst.tid {
        sink.field("tid", Value::Task(tid))?;
    }
    if let Some(cpu) = burst.cpu {
        sink.field("cpu", Value::Number(cpu.into()))?;
    }
    sink.field("ended", Value::Number(burst.ended))?;
    sink.field("period", Value::Number(burst.period))?;
    sink.field("expected", Value::Number(burst.expected.into()))?;
    sink.field("seen", Value::Number(burst.seen.into()))?;
    let outcomes: Vec<&str> = BurstOutcome::NAMES
        .iter()
        .filter(|(outcome, _)| burst.outcome.contains(*outcome))
        .map(|(_, name)| *name)
        .collect();
    sink.field("outcome", Value::Word(&outcomes.join(" ")))?;
    sink.end()
}
