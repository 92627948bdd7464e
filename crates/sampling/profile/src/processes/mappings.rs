//! The modules that each process had mapped, with their times.

use crate::processes::modules::ModuleId;
use crate::processes::tasks::ProcessId;
use crate::profile::Profile;

/// A module, or a part of one, that was mapped in a process's memory for a span of time.
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
    /// Nanoseconds of the recording's clock from which on it was mapped; `None` where that was before the recording. A
    /// mapping that a forked process inherits counts from the fork on.
    pub from: Option<u64>,
    /// Nanoseconds of the recording's clock at which another mapping replaced it, or the process executed another
    /// program or ended. `None` where that was not recorded. Recordings do not report mappings that are only removed.
    pub until: Option<u64>,
}

/// A change of a process's mappings.
#[derive(Clone, Copy, Debug)]
enum Change {
    Map(MappedSpan),
    /// All mappings were removed.
    Exec(Option<u64>),
}

/// All changes of all processes' mappings, in time order.
#[derive(Clone, Debug, Default)]
pub(crate) struct MappingLog {
    /// The changes of each process, each with its place in the common order.
    by_process: Vec<Vec<(u32, Change)>>,
    /// By process: its parent, the time of its fork, and the fork's place in the common order.
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

    /// Returns the ended spans of a process, in the order of their ends, and the spans that have not ended.
    fn spans(&self, process: ProcessId) -> (Vec<MappedSpan>, Vec<MappedSpan>) {
        // The process and its ancestors. Each has the place up to which its changes count, and the time when its child
        // was made.
        let mut line = vec![(process, u32::MAX, None)];
        let mut at = process;
        // Parents have smaller ids, so this ends.
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

/// Maps a span over other spans.
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
    /// Returns the spans that a process had mapped. Ended spans come first, in the order of their ends; the other spans
    /// follow by rising address. Empty unless [`crate::LoadPlan::mappings`] was asked for. The kernel's mappings are
    /// not included, because all processes share them.
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
