//! The calls of one thread, from its file to its streams.

use super::super::loss::UftraceLossKind;
use super::super::record::{DataRecord, RecordKind};
use super::data::DataReader;
use super::stream::StreamWriter;
use super::{Import, UftraceImportError};
use std::collections::{HashMap, VecDeque};

/// The calls that a forked process inherits: the parent's stream, and the functions of its open calls.
pub(super) type Inherited = (u32, Vec<u32>);

/// A forked process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForkedChild {
    /// The id of the process.
    pub child: u32,
    /// The time of its first record.
    pub time: u64,
    /// The first record: it ends an inherited call, or begins one within inherited calls.
    pub first: DataRecord,
}

/// The children that a thread may have forked, and the calls that they inherit.
///
/// A child whose first record is an end inherits the last call of its parent at that depth and address: that of `fork`.
/// Every other child inherits the calls that its parent has open at the child's first record.
#[derive(Debug, Default)]
pub(super) struct ForkedChildren {
    /// The children that are still to come, in the order of time.
    pending: VecDeque<ForkedChild>,
    /// The last call by depth and address, with the calls around it.
    calls: HashMap<(u16, u64), Option<Inherited>>,
    found: Vec<(u32, Inherited)>,
}

impl ForkedChildren {
    pub fn new(mut children: Vec<ForkedChild>) -> ForkedChildren {
        children.sort_by_key(|child| child.time);
        let ends = children.iter().map(|child| child.first);
        let ends = ends.filter(|first| first.kind == RecordKind::Exit);
        ForkedChildren {
            calls: ends.map(|end| ((end.depth, end.address), None)).collect(),
            pending: children.into(),
            found: Vec::new(),
        }
    }

    /// Looks at a record of the parent, before which `open` calls are open.
    fn look(&mut self, stream: u32, record: &DataRecord, function: u32, open: &[u32]) {
        if self.pending.is_empty() {
            return;
        }
        self.pass(stream, record.time, open);
        if record.kind == RecordKind::Entry
            && open.len() == usize::from(record.depth)
            && let Some(last) = self.calls.get_mut(&(record.depth, record.address))
        {
            let mut stack = open.to_vec();
            stack.push(function);
            *last = Some((stream, stack));
        }
    }

    /// Decides about the children whose first records lie before a time.
    fn pass(&mut self, stream: u32, time: u64, open: &[u32]) {
        while let Some(child) = self
            .pending
            .front()
            .copied()
            .filter(|child| child.time < time)
        {
            self.pending.pop_front();
            let depth = usize::from(child.first.depth).min(open.len());
            let call = self.calls.get(&(child.first.depth, child.first.address));
            let call = call.filter(|_| child.first.kind == RecordKind::Exit);
            let call = call.and_then(Clone::clone);
            let inherited = call.unwrap_or_else(|| (stream, open[..depth].to_vec()));
            self.found.push((child.child, inherited));
        }
    }
}

/// A thread that is being imported.
pub(super) struct ThreadImport<'i, 'a> {
    import: &'i mut Import<'a>,
    tid: u32,
    pid: u32,
    /// The program that runs, and the times at which the process executes others.
    session: Option<usize>,
    executions: Vec<u64>,
    stream: Option<StreamWriter>,
    number: u32,
    /// The calls that the thread has inherited, with the stream that it continues.
    inherited: Option<Inherited>,
    children: ForkedChildren,
    /// The number of records that are missing in front of the next one; `None` if there is no gap.
    gap: Option<u64>,
}

impl<'i, 'a> ThreadImport<'i, 'a> {
    pub fn new(
        import: &'i mut Import<'a>,
        tid: u32,
        pid: u32,
        inherited: Option<Inherited>,
        children: Vec<ForkedChild>,
    ) -> ThreadImport<'i, 'a> {
        let mut executions = import.tasks.executions(pid);
        executions.reverse();
        ThreadImport {
            import,
            tid,
            pid,
            session: None,
            executions,
            stream: None,
            number: 0,
            inherited,
            children: ForkedChildren::new(children),
            gap: None,
        }
    }

    /// Reads the records of the thread's file.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), UftraceImportError> {
        let mut reader = DataReader::new(bytes);
        loop {
            let item = {
                let open = self.stream.as_ref().map_or(0, |stream| stream.open().len());
                let last = self.stream.as_ref().map_or(1, StreamWriter::last);
                let (programs, session) = (&self.import.programs, self.session);
                reader.next_that(|record| {
                    let depth = usize::from(record.depth);
                    let is_in_time = record.time >= last;
                    let is_mapped = || programs.is_mapped(session, record.address);
                    is_in_time
                        && match record.kind {
                            RecordKind::Entry => depth == open && is_mapped(),
                            RecordKind::Exit => depth + 1 == open && is_mapped(),
                            RecordKind::Event => record.address >= 100_000,
                            RecordKind::Lost => false,
                        }
                })
            };
            let Some(item) = item else { break };
            let losses = &mut self.import.losses;
            if item.damaged > 0 {
                losses.add_many(UftraceLossKind::DamagedBytes, item.damaged);
                self.gap = self.gap.or(Some(0));
            }
            let record = item.record;
            match record.kind {
                RecordKind::Event => losses.add(UftraceLossKind::Events),
                RecordKind::Lost => {
                    let lost = self.gap.unwrap_or(0).saturating_add(record.address);
                    self.gap = Some(lost);
                }
                RecordKind::Entry | RecordKind::Exit => {
                    if record.has_payload {
                        losses.add(UftraceLossKind::Arguments);
                    }
                    self.call(record)?;
                }
            }
        }
        let left = reader.left();
        self.import
            .losses
            .add_many(UftraceLossKind::DamagedBytes, left);
        Ok(())
    }

    /// Takes the beginning or end of a call.
    fn call(&mut self, record: DataRecord) -> Result<(), UftraceImportError> {
        let (time, depth) = (record.time, usize::from(record.depth));
        self.program(time)?;
        let import = &mut *self.import;
        let function =
            import
                .programs
                .function(import.writer, import.losses, self.session, record.address)?;
        let is_entry = record.kind == RecordKind::Entry;
        let needed = if is_entry { depth } else { depth + 1 };
        let Some(stream) = &mut self.stream else {
            return self.begin(record, function, needed);
        };
        self.children
            .look(self.number, &record, function, stream.open());
        if time < stream.last() {
            import.losses.add(UftraceLossKind::EarlyRecords);
        }
        import.last = import.last.max(time);
        let open = stream.open();
        let is_known = is_entry || open.get(depth) == Some(&function);
        if is_known && open.len() == needed {
            // The calls fit, so all that is missing lies behind the last record.
            if let Some(lost) = self.gap.take() {
                stream.lose(import.writer, lost)?;
            }
        }
        let open = stream.open();
        if self.gap.is_some() || open.len() < needed {
            // Ends and beginnings are missing in front of the record.
            let mut open = open.to_vec();
            if !is_known {
                open.truncate(depth);
            }
            import.losses.add_many(
                UftraceLossKind::UnknownCalls,
                depth.saturating_sub(open.len()) as u64,
            );
            open.resize(needed.min(open.len().max(depth)), 0);
            open.truncate(needed);
            if !is_entry && open.len() < needed {
                open.push(function);
            }
            let lost = self.gap.take().unwrap_or(0);
            stream.resume(import.writer, time, lost, open)?;
        } else if is_entry {
            stream.unwind(import.writer, time, depth)?;
        } else if is_known {
            stream.unwind(import.writer, time, needed)?;
        } else {
            // The second return of a function that returns twice: the calls since its first one are gone.
            stream.unwind(import.writer, time, depth)?;
            import.losses.add(UftraceLossKind::StrayEnds);
            return Ok(());
        }
        if is_entry {
            import.calls += 1;
            stream.enter(import.writer, time, function)
        } else {
            stream.leave(import.writer, time)
        }
    }

    /// Goes on with another program if the process has executed one.
    fn program(&mut self, time: u64) -> Result<(), UftraceImportError> {
        let mut is_other = self.stream.is_none();
        while self.executions.last().is_some_and(|next| *next <= time) {
            self.executions.pop();
            is_other = true;
        }
        if is_other {
            self.session = self.import.tasks.session_at(self.pid, time);
            if let Some(stream) = self.stream.take() {
                stream.finish(self.import.writer)?;
            }
        }
        Ok(())
    }

    /// Begins a stream with its first record.
    fn begin(
        &mut self,
        record: DataRecord,
        function: u32,
        needed: usize,
    ) -> Result<(), UftraceImportError> {
        let import = &mut *self.import;
        import.streams += 1;
        self.number = import.streams;
        let (parent, mut open) = self.inherited.take().unwrap_or_default();
        open.truncate(needed);
        let depth = usize::from(record.depth);
        let missing = depth.saturating_sub(open.len());
        import
            .losses
            .add_many(UftraceLossKind::UnknownCalls, missing as u64);
        open.resize(needed, 0);
        if record.kind == RecordKind::Exit
            && let Some(innermost) = open.last_mut()
        {
            *innermost = function;
        }
        let thread = (self.pid, self.tid);
        import.tell_thread(self.number, thread, self.session, parent)?;
        let (time, gap) = (record.time, self.gap.take());
        let mut stream = StreamWriter::new(self.number, thread, parent, time, open);
        import.last = import.last.max(time);
        if let Some(lost) = gap.filter(|lost| *lost > 0) {
            let open = stream.open().to_vec();
            stream.resume(import.writer, time, lost, open)?;
        }
        let done = match record.kind {
            RecordKind::Entry => {
                import.calls += 1;
                self.children
                    .look(self.number, &record, function, stream.open());
                stream.enter(import.writer, time, function)
            }
            _ => stream.leave(import.writer, time),
        };
        self.stream = Some(stream);
        done
    }

    /// Writes what is left. Returns the calls that forked processes inherit, by their ids.
    pub fn finish(mut self) -> Result<Vec<(u32, Inherited)>, UftraceImportError> {
        if let Some(stream) = self.stream.take() {
            self.children.pass(self.number, u64::MAX, stream.open());
            stream.finish(self.import.writer)?;
        }
        Ok(self.children.found)
    }
}
