//! Which modules a process had mapped, from when until when.

use crate::processes::modules::ModuleId;
use crate::processes::tasks::ProcessId;
use crate::profile::Profile;

/// A module, or a part of one, in a process's memory from one time until another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedSpan {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The module's relative address at `start`.
    pub offset: u64,
    /// The module.
    pub module: ModuleId,
    /// Nanoseconds of the recording's clock from which on it was mapped; `None` where that was before the recording.
    /// What a forked process inherits is its own from the fork on.
    pub from: Option<u64>,
    /// When something else was mapped in its place, or the process ran something else or ended; `None` where that was
    /// not recorded. Recordings do not tell of mappings that are only taken away.
    pub until: Option<u64>,
}

/// What changed a process's mappings.
#[derive(Clone, Copy, Debug)]
enum Change {
    Map(MappedSpan),
    /// Everything went.
    Exec(Option<u64>),
}

/// All changes of all processes' mappings, in time order.
#[derive(Clone, Debug, Default)]
pub(crate) struct MappingLog {
    /// With their places in the common order.
    by_process: Vec<Vec<(u32, Change)>>,
    /// By process: its parent, the time, and the place of its fork.
    forks: Vec<Option<(ProcessId, Option<u64>, u32)>>,
    next: u32,
}

impl MappingLog {
    fn change(&mut self, process: ProcessId, change: Change) {
        let index = process as usize;
        if index >= self.by_process.len() {
            self.by_process.resize_with(index + 1, Vec::new);
        }
        self.by_process[index].push((self.next, change));
        self.next = self.next.saturating_add(1);
    }

    pub(crate) fn map(&mut self, process: ProcessId, span: MappedSpan) {
        if span.start < span.end {
            self.change(process, Change::Map(span));
        }
    }

    pub(crate) fn exec(&mut self, process: ProcessId, time: Option<u64>) {
        self.change(process, Change::Exec(time));
    }

    pub(crate) fn fork(&mut self, child: ProcessId, parent: ProcessId, time: Option<u64>) {
        let index = child as usize;
        if index >= self.forks.len() {
            self.forks.resize(index + 1, None);
        }
        self.forks[index] = Some((parent, time, self.next));
    }

    /// All spans of a process, in the order of their ends.
    fn spans(&self, process: ProcessId) -> (Vec<MappedSpan>, Vec<MappedSpan>) {
        // The process and those it descends from, with the place up to which each counts and when the child was made.
        let mut line = vec![(process, u32::MAX, None)];
        let mut at = process;
        // Parents are older, so this ends.
        while let Some(Some((parent, time, place))) = self.forks.get(at as usize)
            && *parent < at
        {
            line.push((*parent, *place, *time));
            at = *parent;
        }
        let mut live: Vec<MappedSpan> = Vec::new();
        let mut ended = Vec::new();
        for (of, before, forked) in line.into_iter().rev() {
            let changes = self.by_process.get(of as usize);
            for (place, change) in changes.into_iter().flatten() {
                if *place >= before {
                    break;
                }
                match change {
                    Change::Map(span) => replace(&mut live, &mut ended, *span),
                    Change::Exec(time) => ended.extend(live.drain(..).map(|span| MappedSpan {
                        until: *time,
                        ..span
                    })),
                }
            }
            if of != process {
                ended.clear();
                live.iter_mut().for_each(|span| span.from = forked);
            }
        }
        (ended, live)
    }
}

/// Maps a span over others.
fn replace(live: &mut Vec<MappedSpan>, ended: &mut Vec<MappedSpan>, new: MappedSpan) {
    let first = live.partition_point(|old| old.end <= new.start);
    let after = live.partition_point(|old| old.start < new.end).max(first);
    let part = |old: &MappedSpan, start: u64, end: u64| MappedSpan {
        start,
        end,
        offset: old.offset.wrapping_add(start.wrapping_sub(old.start)),
        ..*old
    };
    let mut pieces = Vec::new();
    for old in &live[first..after] {
        if old.start < new.start {
            pieces.push(part(old, old.start, new.start));
        }
        ended.push(MappedSpan {
            until: new.from,
            ..part(old, old.start.max(new.start), old.end.min(new.end))
        });
    }
    pieces.push(new);
    if let Some(last) = live[first..after].last()
        && last.end > new.end
    {
        pieces.push(part(last, new.end, last.end));
    }
    live.splice(first..after, pieces);
}

impl Profile {
    /// What a process had mapped, and when: spans that ended in the order of their ends, then those that did not by
    /// rising address. Empty unless [`crate::LoadPlan::mappings`] was asked for. The kernel's mappings are not among
    /// them: all processes have those.
    pub fn mappings(&self, process: ProcessId) -> Vec<MappedSpan> {
        let (mut spans, live) = self.mapping_log.spans(process);
        let end = self
            .tasks
            .processes()
            .get(process as usize)
            .and_then(|process| process.end);
        spans.extend(
            live.into_iter()
                .map(|span| MappedSpan { until: end, ..span }),
        );
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64, module: ModuleId, from: u64) -> MappedSpan {
        MappedSpan {
            start,
            end,
            offset: 0,
            module,
            from: Some(from),
            until: None,
        }
    }

    type Short = (u64, u64, u64, ModuleId, Option<u64>, Option<u64>);

    fn short(spans: &[MappedSpan]) -> Vec<Short> {
        spans
            .iter()
            .map(|s| (s.start, s.end, s.offset, s.module, s.from, s.until))
            .collect()
    }

    #[test]
    fn spans_end_where_others_begin() {
        let mut log = MappingLog::default();
        log.map(0, span(10, 40, 1, 100));
        log.map(0, span(20, 30, 2, 200));
        log.fork(1, 0, Some(250));
        log.map(0, span(0, 50, 3, 300));
        log.exec(1, Some(400));
        log.map(1, span(10, 20, 4, 410));
        let (ended, live) = log.spans(0);
        assert_eq!(
            short(&ended),
            [
                (20, 30, 10, 1, Some(100), Some(200)),
                (10, 20, 0, 1, Some(100), Some(300)),
                (20, 30, 0, 2, Some(200), Some(300)),
                (30, 40, 20, 1, Some(100), Some(300)),
            ]
        );
        assert_eq!(short(&live), [(0, 50, 0, 3, Some(300), None)]);
        let (ended, live) = log.spans(1);
        assert_eq!(
            short(&ended),
            [
                (10, 20, 0, 1, Some(250), Some(400)),
                (20, 30, 0, 2, Some(250), Some(400)),
                (30, 40, 20, 1, Some(250), Some(400)),
            ]
        );
        assert_eq!(short(&live), [(10, 20, 0, 4, Some(410), None)]);
        assert!(log.spans(7).0.is_empty());
    }
}
