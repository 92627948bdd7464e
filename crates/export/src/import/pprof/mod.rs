//! pprof's profiles: the protocol buffer `perftools.profiles.Profile`.
//!
//! The content is read twice: first its tables, then its samples, one at a time.

mod addresses;
mod events;
mod tables;

use super::error::ImportError;
use super::names::Location;
use super::omitted::{Omissions, OmittedKind};
use super::recording::{Fields, Recording, Samples};
use super::records::Task;
use super::{ImportFormat, ImportOptions, ImportedEvent};
use crate::wire::{Value, Wire};
use addresses::Addresses;
use dioptra_perfdata::ImportedRole;
use events::Values;
use hashbrown::HashMap;
use std::io::{Seek, Write};
use tables::Tables;

/// The largest number of samples of a recording. Above it, each value becomes one sample.
const MOST_SAMPLES: u64 = 20_000_000;

/// Returns whether the first fields of a message are those of a profile.
pub(super) fn looks_right(content: &[u8]) -> bool {
    let mut wire = Wire::new(content);
    let mut fields = 0;
    loop {
        match wire.field() {
            Ok(Some((1..=15, Value::Number(_) | Value::Bytes(_)))) if fields < 16 => fields += 1,
            Ok(Some((1..=15, _))) if fields >= 16 => return true,
            Ok(None) => return fields > 0,
            // A damaged profile is reported as one if its beginning is whole.
            Err(_) => return fields > 0,
            Ok(Some(_)) => return false,
        }
    }
}

/// A sample as the profile has it.
#[derive(Debug, Default)]
struct RawSample {
    offset: u64,
    locations: Vec<u64>,
    values: Vec<u64>,
    /// The key, the text and the number of each label.
    labels: Vec<(u64, u64, u64)>,
}

impl RawSample {
    fn read(
        &mut self,
        mut message: Wire<'_>,
        omissions: &mut Omissions,
    ) -> Result<(), ImportError> {
        self.offset = message.offset;
        self.locations.clear();
        self.values.clear();
        self.labels.clear();
        while let Some((field, value)) = message.field()? {
            match (field, value) {
                (1, value) => Wire::numbers(value, &mut self.locations)?,
                (2, value) => Wire::numbers(value, &mut self.values)?,
                (3, Value::Bytes(mut label)) => {
                    let mut found = (0, 0, 0);
                    while let Some((field, value)) = label.field()? {
                        match (field, value) {
                            (1, Value::Number(key)) => found.0 = key,
                            (2, Value::Number(text)) => found.1 = text,
                            (3, Value::Number(number)) => found.2 = number,
                            // The unit of a number.
                            _ => {}
                        }
                    }
                    self.labels.push(found);
                }
                _ => omissions.add(OmittedKind::UnknownFields),
            }
        }
        Ok(())
    }

    fn error(&self, why: impl Into<String>) -> ImportError {
        let at = Wire {
            bytes: &[],
            offset: self.offset,
        };
        at.error(why)
    }

    /// Returns one of the values.
    fn value(&self, place: usize) -> Result<u64, ImportError> {
        let value = self.values.get(place).copied();
        let value = value.ok_or_else(|| self.error("a sample has fewer values than types"))?;
        match i64::try_from(value) {
            Ok(_) => Ok(value),
            Err(_) => Err(self.error(
                "a value is negative, as in differences of profiles; samples count what happened",
            )),
        }
    }

    /// Returns the number of samples and the weight in an event; `None` for no samples.
    fn count(&self, values: &Values) -> Result<Option<(u64, u64)>, ImportError> {
        let weight = match values.weight {
            Some((place, factor)) => {
                let weight = self.value(place)?.checked_mul(factor);
                weight.ok_or_else(|| self.error("a time has more nanoseconds than 64 bits hold"))?
            }
            None => 0,
        };
        let samples = match values.samples {
            Some(place) => self.value(place)?,
            None => u64::from(weight > 0),
        };
        Ok((samples > 0 || weight > 0).then_some((samples, weight)))
    }
}

/// Writes a profile as a recording.
pub(super) fn import<W: Write + Seek>(
    content: &[u8],
    options: ImportOptions,
    omissions: &mut Omissions,
    out: W,
) -> Result<Vec<ImportedEvent>, ImportError> {
    let content = Wire::new(content);
    let tables = Tables::read(content, omissions)?;
    let mut events = events::events(&tables, omissions)?;
    if events.is_empty() {
        return Err(content.error("the profile states no types of values"));
    }
    let survey = Survey::of(content, &tables, &mut events)?;
    let kinds: Vec<_> = events.iter().map(|values| values.event.clone()).collect();
    let fields = Fields {
        times: false,
        cpus: survey.has_cpus,
    };
    let mut recording = Recording::begin(&kinds, fields, omissions, out)?;
    let mut addresses = Addresses::new(&tables, &mut recording)?;
    let mut threads = Threads::new(&tables, &options);
    let mut raw = RawSample::default();
    let mut stack: Vec<Location> = Vec::new();
    let mut is_first = true;
    let mut samples = content;
    while let Some((field, value)) = samples.field()? {
        let (2, Value::Bytes(message)) = (field, value) else {
            continue;
        };
        raw.read(message, recording.omissions)?;
        if raw.values.len() != tables.types.len() {
            return Err(raw.error(format!(
                "a sample has {} values, but the profile {} types",
                raw.values.len(),
                tables.types.len()
            )));
        }
        let (task, comm) = threads.find(&raw, recording.omissions)?;
        if is_first {
            recording.map_all(task)?;
            is_first = false;
        }
        stack.clear();
        let mut callee_in_kernel = false;
        for (place, id) in raw.locations.iter().enumerate() {
            let Some(index) = tables.location(*id) else {
                return Err(raw.error(format!("there is no location with the id {id}")));
            };
            // User code that the kernel interrupted has made no call.
            let interrupted = callee_in_kernel && !addresses.in_kernel(&tables, index);
            let role = match place == 0 || interrupted {
                true => ImportedRole::Executes,
                false => ImportedRole::Calls,
            };
            let location = addresses.find(&tables, &mut recording, index, role)?;
            callee_in_kernel = location.in_kernel;
            stack.push(location);
        }
        if stack.is_empty() {
            stack.push(Location::nowhere(0));
        }
        for (event, values) in events.iter().enumerate() {
            let Some((mut count, weight)) = raw.count(values)? else {
                continue;
            };
            // A weight without samples would be nowhere.
            if values.samples.is_none() || count == 0 {
                recording
                    .omissions
                    .add(OmittedKind::SampleNumbers(values.event.name.clone()));
                count = 1;
            }
            let samples = Samples {
                event,
                task,
                comm: &comm,
                count,
                weight,
            };
            recording.add(samples, &stack)?;
        }
    }
    recording
        .omissions
        .add_many(OmittedKind::Addresses, addresses.moved);
    recording.finish(ImportFormat::Pprof.name(), options.features)
}

/// The answers to questions about all samples, which must be known before the first one is written.
struct Survey {
    has_cpus: bool,
}

impl Survey {
    /// Looks at all samples. Events with too many samples lose their numbers.
    fn of(
        mut content: Wire<'_>,
        tables: &Tables<'_>,
        events: &mut [Values],
    ) -> Result<Survey, ImportError> {
        let mut raw = RawSample::default();
        let mut unused = Omissions::default();
        let mut has_cpus = false;
        let mut total = 0_u64;
        while let Some((field, value)) = content.field()? {
            let (2, Value::Bytes(message)) = (field, value) else {
                continue;
            };
            raw.read(message, &mut unused)?;
            for (key, _, _) in &raw.labels {
                has_cpus |= tables.text(*key)? == "cpu";
            }
            for values in &*events {
                if values.samples.is_some()
                    && let Some((samples, _)) = raw.count(values)?
                {
                    total = total.saturating_add(samples);
                }
            }
        }
        if total > MOST_SAMPLES {
            for values in events {
                if let (Some(place), None) = (values.samples, values.weight) {
                    values.weight = Some((place, 1));
                    values.event.has_weights = true;
                }
                values.samples = None;
            }
        }
        Ok(Survey { has_cpus })
    }
}

/// The threads of a profile, told by the labels of its samples.
struct Threads<'a> {
    tables: &'a Tables<'a>,
    default_comm: String,
    /// Numbers of threads that have a name only.
    made_up: HashMap<String, u32>,
}

impl<'a> Threads<'a> {
    fn new(tables: &'a Tables<'a>, options: &ImportOptions) -> Threads<'a> {
        let main = tables.mappings.first();
        let main = main.and_then(|mapping| tables.text(mapping.file).ok());
        let name = main.and_then(|file| file.rsplit('/').next());
        let name = name.filter(|name| !name.is_empty() && !name.starts_with('['));
        Threads {
            tables,
            default_comm: name.unwrap_or(&options.thread_name).to_owned(),
            made_up: HashMap::new(),
        }
    }

    /// Returns the thread of a sample, and its name.
    fn find(
        &mut self,
        sample: &RawSample,
        omissions: &mut Omissions,
    ) -> Result<(Task, String), ImportError> {
        let mut comm: Option<&str> = None;
        let mut thread: Option<&str> = None;
        let mut numbers: [Option<u32>; 3] = [None; 3];
        for (key, text, number) in &sample.labels {
            let key = self.tables.text(*key)?;
            let text = self.tables.text(*text)?;
            let value = || match text {
                "" => u32::try_from(*number).ok(),
                text => text.parse().ok(),
            };
            let place = match key {
                "comm" if !text.is_empty() && comm.is_none() => {
                    comm = Some(text);
                    continue;
                }
                "thread" if !text.is_empty() && thread.is_none() => {
                    thread = Some(text);
                    continue;
                }
                "pid" => 0,
                "tid" => 1,
                "cpu" => 2,
                _ => {
                    omissions.add(OmittedKind::Labels(key.to_owned()));
                    continue;
                }
            };
            match value() {
                Some(number) if numbers[place].is_none() => numbers[place] = Some(number),
                _ => omissions.add(OmittedKind::Labels(key.to_owned())),
            }
        }
        let comm = comm.or(thread).unwrap_or(&self.default_comm).to_owned();
        let [pid, tid, cpu] = numbers;
        let (pid, tid) = match (pid, tid) {
            (Some(pid), Some(tid)) => (pid, tid),
            (Some(one), None) | (None, Some(one)) => (one, one),
            (None, None) => {
                let next = u32::try_from(self.made_up.len() + 1).unwrap_or(u32::MAX);
                let number = *self.made_up.entry(comm.clone()).or_insert(next);
                (number, number)
            }
        };
        let task = Task {
            pid,
            tid,
            time: 0,
            cpu: cpu.unwrap_or(0),
        };
        Ok((task, comm))
    }
}
