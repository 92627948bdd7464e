//! A recording that is made of another tool's profile: from stacks to records.

use super::ImportedEvent;
use super::error::ImportError;
use super::names::{Location, NameTable, Part};
use super::omitted::{Omissions, OmittedKind};
use super::records::{MOST_FRAMES, RecordBuffer, Task};
use dioptra_perfdata::{BuildId, EventToWrite, FeaturesToWrite, WriteOptions, Writer};
use dioptra_perfrecords::names::{hardware, software};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use hashbrown::{HashMap, HashSet};
use std::io::{Seek, Write};

/// The longest name of a thread, in bytes, for which a record has room.
const LONGEST_COMM: usize = 4000;

/// The name of the module of functions whose module is not known.
pub(super) const NO_MODULE: &str = "[imported]";

/// An event that is imported.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    pub name: String,
    /// Whether its values are nanoseconds.
    pub is_time: bool,
    /// Whether samples state weights. Otherwise each counts as one.
    pub has_weights: bool,
    /// The fixed number of events between samples, if it is known.
    pub period: Option<u64>,
}

/// The fields that samples have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields {
    pub times: bool,
    pub cpus: bool,
}

/// A recording that is being written.
pub(super) struct Recording<'o, W: Write> {
    pub names: NameTable,
    pub omissions: &'o mut Omissions,
    writer: Writer<W>,
    buffer: RecordBuffer,
    events: Vec<EventState>,
    /// By thread: its name now.
    comms: HashMap<(u32, u32), Box<str>>,
    /// The parts of modules that were mapped, by process; the kernel's under process 0.
    mapped: HashSet<(u32, u32, Part)>,
}

struct EventState {
    fields: SampleType,
    total: ImportedEvent,
}

/// A sample, or several alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'s> {
    /// The event's index.
    pub event: usize,
    pub task: Task,
    /// The thread's name.
    pub comm: &'s str,
    /// The number of samples.
    pub count: u64,
    /// The sum of their weights.
    pub weight: u64,
}

impl<'o, W: Write + Seek> Recording<'o, W> {
    /// Begins a recording of these events.
    pub(super) fn begin(
        events: &[Event],
        fields: Fields,
        omissions: &'o mut Omissions,
        out: W,
    ) -> Result<Self, ImportError> {
        let mut common =
            SampleType::IDENTIFIER | SampleType::IP | SampleType::TID | SampleType::CALLCHAIN;
        common.set(SampleType::TIME, fields.times);
        common.set(SampleType::CPU, fields.cpus);
        let written = (1..).zip(events).map(|(id, event)| EventToWrite {
            attr: attr(event, common),
            name: event.name.clone(),
            ids: vec![id],
        });
        let written: Vec<EventToWrite> = written.collect();
        let states = written.iter().map(|event| EventState {
            fields: event.attr.sample_type,
            total: ImportedEvent {
                name: event.name.clone(),
                samples: 0,
                weight: 0,
            },
        });
        let events = states.collect();
        Ok(Recording {
            names: NameTable::default(),
            omissions,
            writer: Writer::create(out, &written, WriteOptions::default())?,
            buffer: RecordBuffer::default(),
            events,
            comms: HashMap::new(),
            mapped: HashSet::new(),
        })
    }

    /// Maps every module of the profile into a process, in the order of the modules. The first one is its program.
    pub(super) fn map_all(&mut self, task: Task) -> Result<(), ImportError> {
        for index in 0..self.names.modules().len() {
            if self.names.modules()[index].mapped.is_some() {
                let module = u32::try_from(index).unwrap_or(u32::MAX);
                self.map(task, module, Part::Mapped, index == 0)?;
            }
        }
        Ok(())
    }

    fn map(
        &mut self,
        task: Task,
        index: u32,
        part: Part,
        is_main: bool,
    ) -> Result<(), ImportError> {
        let module = self.names.module(index);
        let process = if module.is_kernel { 0 } else { task.pid };
        if !self.mapped.insert((process, index, part)) {
            return Ok(());
        }
        let mapped = match part {
            Part::Mapped => module.mapped.unwrap_or(module.made_up),
            _ => module.made_up,
        };
        // Mappings count from the beginning on.
        let task = Task { time: 0, ..task };
        let record = self.buffer.mapping(
            self.events[0].fields,
            (task, 1),
            (&module.path, module.build_id.as_deref()),
            mapped,
            (module.is_kernel, is_main),
        );
        Ok(self.writer.write(record)?)
    }

    /// Adds samples. The stack's locations come innermost first.
    pub(super) fn add(
        &mut self,
        samples: Samples<'_>,
        stack: &[Location],
    ) -> Result<(), ImportError> {
        let Samples {
            task,
            comm,
            count,
            weight,
            ..
        } = samples;
        if self.comms.get(&(task.pid, task.tid)).map(|name| &**name) != Some(comm) {
            self.rename(task, comm)?;
        }
        let mut stack = stack;
        if stack.len() > MOST_FRAMES {
            stack = &stack[..MOST_FRAMES];
            self.omissions.add(OmittedKind::OuterFrames);
        }
        for location in stack {
            if location.part != Part::Nowhere {
                let module = self.names.module(location.module);
                let process = if module.is_kernel { 0 } else { task.pid };
                let key = (process, location.module, location.part);
                if !self.mapped.contains(&key) {
                    self.map(task, location.module, location.part, false)?;
                }
            }
        }
        let id = samples.event as u64 + 1;
        let event = &mut self.events[samples.event];
        let total = &mut event.total;
        let sums = (
            total.samples.checked_add(count),
            total.weight.checked_add(weight),
        );
        let (Some(sum), Some(weight_sum)) = sums else {
            return Err(ImportError::TotalTooLarge {
                event: total.name.clone(),
            });
        };
        (total.samples, total.weight) = (sum, weight_sum);
        // The weight of each sample, and the number of samples that weigh one more.
        let (each, more) = (
            weight.checked_div(count).unwrap_or(0),
            weight.checked_rem(count).unwrap_or(0),
        );
        for number in 0..count {
            let own = each + u64::from(number < more);
            let addresses = stack
                .iter()
                .map(|location| (location.address, location.in_kernel));
            let record = self.buffer.sample(event.fields, (task, id), own, addresses);
            self.writer.write(record)?;
        }
        Ok(())
    }

    fn rename(&mut self, task: Task, comm: &str) -> Result<(), ImportError> {
        let mut written = comm;
        if comm.len() > LONGEST_COMM {
            self.omissions.add(OmittedKind::LongNames);
            let mut end = LONGEST_COMM;
            while !comm.is_char_boundary(end) {
                end -= 1;
            }
            written = &comm[..end];
        }
        let before = self.comms.insert((task.pid, task.tid), comm.into());
        let time = if before.is_none() { 0 } else { task.time };
        let task = Task { time, ..task };
        let record = self.buffer.comm(self.events[0].fields, task, 1, written);
        Ok(self.writer.write(record)?)
    }

    /// Ends the recording, and returns its events.
    pub(super) fn finish(
        self,
        format: &str,
        mut features: FeaturesToWrite,
    ) -> Result<Vec<ImportedEvent>, ImportError> {
        self.omissions
            .add_many(OmittedKind::LongNames, self.names.cut);
        for module in self.names.modules() {
            if let Some(build_id) = &module.build_id {
                features.build_ids.push(BuildId {
                    misc: if module.is_kernel { 1 } else { 2 },
                    pid: -1,
                    build_id: build_id.clone(),
                    path: module.path.clone().into_bytes(),
                });
            }
        }
        features.imported = Some(self.names.finish(format));
        self.writer.finish(&features)?;
        Ok(self.events.into_iter().map(|event| event.total).collect())
    }
}

/// Returns the attributes of an event.
fn attr(event: &Event, mut fields: SampleType) -> Attr {
    fields.set(SampleType::PERIOD, event.has_weights);
    // Modifiers follow a colon: `cycles:u`.
    let base = event.name.split(':').next().unwrap_or_default();
    let software_event = |name: &str| {
        let mut events = software::EVENTS.iter();
        events.find(|known| known.names.contains(&name))
    };
    let is_clock = |config: u64| matches!(config, software::CPU_CLOCK | software::TASK_CLOCK);
    let (kind, config) = match (software_event(base), hardware::config(base)) {
        (Some(known), _)
            if is_clock(known.config) == event.is_time && known.config != software::DUMMY =>
        {
            (event_type::SOFTWARE, known.config)
        }
        _ if event.is_time => (event_type::SOFTWARE, software::CPU_CLOCK),
        (None, Some(config)) => (event_type::HARDWARE, config),
        // No event of the kernel.
        _ => (event_type::RAW, 0),
    };
    let mut flags = AttrFlags::SAMPLE_ID_ALL
        | AttrFlags::MMAP
        | AttrFlags::MMAP2
        | AttrFlags::COMM
        | AttrFlags::COMM_EXEC
        | AttrFlags::TASK;
    let sample_period = match (event.period, event.is_time && event.has_weights) {
        (Some(period), _) => period.max(1),
        // A period of one nanosecond says that the period is not known, since no clock has it.
        (None, true) => 1,
        (None, false) => {
            flags |= AttrFlags::FREQ;
            1
        }
    };
    Attr {
        kind,
        config,
        sample_period,
        sample_type: fields,
        flags,
        ..Attr::default()
    }
}

/// Returns whether the values of the event with this name are nanoseconds.
pub(super) fn is_time(name: &str) -> bool {
    let base = name.split(':').next().unwrap_or_default();
    matches!(base, "cpu-clock" | "task-clock")
}
