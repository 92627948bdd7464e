//! A profile as a recording: a file in the format perf.data, with the names of its functions.

use crate::model::{Fleet, Function, KERNEL, Profile};
use dioptra_perfdata::{
    BuildId, ClockData, EventToWrite, FeaturesToWrite, ImportedFrame, ImportedFunction,
    ImportedModule, ImportedNames, ImportedRole, WriteOptions, Writer,
};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use std::collections::BTreeSet;
use std::io::{Seek, Write};

/// Marks in call chains: the addresses after it lie in the kernel, or in user code.
const IN_KERNEL: u64 = -128_i64 as u64;
const IN_USER: u64 = -512_i64 as u64;
/// The bytes of each function.
const SIZE: u64 = 64;
/// The start of the kernel, and the start and distance of other modules.
const KERNEL_START: u64 = 0xffff_ffff_8100_0000;
const START: u64 = 0x5500_0000_0000;
const DISTANCE: u64 = 1 << 32;
/// The nanoseconds between samples of a CPU: 99 a second.
const PERIOD: u64 = 10_101_010;
/// The reading of the events' clock at the recording's start.
const CLOCK: u64 = 1_000_000_000;
/// The length of a recording in nanoseconds.
const LENGTH: u64 = 60 * 1_000_000_000;
const ID: u64 = 1;

const FIELDS: SampleType = SampleType::IDENTIFIER
    .union(SampleType::IP)
    .union(SampleType::TID)
    .union(SampleType::TIME)
    .union(SampleType::CPU)
    .union(SampleType::PERIOD)
    .union(SampleType::CALLCHAIN);

/// A record as it grows.
#[derive(Default)]
struct Record(Vec<u8>);

impl Record {
    fn begin(&mut self, kind: u32, misc: u16) {
        self.0.clear();
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(misc.to_ne_bytes());
        // The size comes last.
        self.0.extend([0; 2]);
    }

    fn halves(&mut self, values: &[u32]) {
        values
            .iter()
            .for_each(|value| self.0.extend(value.to_ne_bytes()));
    }

    fn words(&mut self, values: &[u64]) {
        values
            .iter()
            .for_each(|value| self.0.extend(value.to_ne_bytes()));
    }

    fn text(&mut self, text: &str) {
        self.0.extend(text.as_bytes());
        let end = (self.0.len() + 1).next_multiple_of(8);
        self.0.resize(end, 0);
    }

    fn end(&mut self) -> &[u8] {
        let size = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        self.0[6..8].copy_from_slice(&size.to_ne_bytes());
        &self.0
    }
}

/// Writes a profile's recording.
pub fn write(fleet: &Fleet, profile: &Profile, out: impl Write + Seek) -> anyhow::Result<()> {
    let service = fleet.service(profile.service);
    let pid = 1000 + u32::try_from(profile.number % 30_000)?;
    let attr = Attr {
        kind: event_type::SOFTWARE,
        sample_period: PERIOD,
        sample_type: FIELDS,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::COMM_EXEC | AttrFlags::MMAP2,
        ..Attr::default()
    };
    let event = EventToWrite {
        attr,
        name: "cpu-clock".to_owned(),
        ids: vec![ID],
    };
    let mut writer = Writer::create(out, &[event], WriteOptions::default())?;
    let mut record = Record::default();
    let mut features = FeaturesToWrite {
        hostname: Some(fleet.host(profile.host)),
        os_release: Some("6.1.0-41-amd64".to_owned()),
        arch: Some("x86_64".to_owned()),
        cpu_description: Some("synthetic CPU".to_owned()),
        command_line: vec!["dioptra".to_owned(), "record".to_owned(), "-a".to_owned()],
        clock_data: Some(ClockData {
            clockid: 1,
            wall_clock: profile.start_ns,
            clock: CLOCK,
        }),
        ..FeaturesToWrite::default()
    };
    for thread in 0..12 {
        // COMM; the first one names the process, too.
        let misc = u16::from(thread == 0) << 13;
        record.begin(3, misc);
        record.halves(&[pid, pid + thread]);
        record.text(&service.thread(thread));
        trailer(&mut record, pid, pid + thread);
        writer.write(record.end())?;
    }
    for (number, module) in (0_u8..).zip(&service.modules) {
        let in_kernel = number == KERNEL;
        let build_id = service.build_id(number, profile.build);
        let start = address(Function {
            module: number,
            number: 0,
        });
        // MMAP2 with a build id.
        record.begin(10, if in_kernel { 1 } else { 2 } | 1 << 14);
        let owner = if in_kernel { u32::MAX } else { pid };
        record.halves(&[owner, if in_kernel { 0 } else { pid }]);
        let length = (u64::from(service.functions(number)) + 1) * SIZE;
        record.words(&[
            start,
            length.next_multiple_of(4096),
            if in_kernel { start } else { 0 },
        ]);
        let mut identity = [0; 24];
        identity[0] = 20;
        identity[4..].copy_from_slice(&build_id);
        record.0.extend(identity);
        // Readable and executable; private.
        record.halves(&[5, 2]);
        record.text(&module.path);
        trailer(&mut record, pid, pid);
        writer.write(record.end())?;
        features.build_ids.push(BuildId {
            misc: if in_kernel { 1 } else { 2 },
            pid: -1,
            build_id,
            path: module.path.clone().into_bytes(),
        });
    }
    let mut seen = BTreeSet::new();
    let step = LENGTH / profile.samples.max(1);
    let mut time = CLOCK;
    let mut chain: Vec<u64> = Vec::new();
    let mut failed = None;
    fleet.samples(profile, |sample| {
        if failed.is_some() {
            return;
        }
        let slow = Function {
            module: 0,
            number: service.functions(0),
        };
        let functions = sample.stack.iter().chain(sample.slow.then_some(&slow));
        chain.clear();
        let mut in_kernel = None;
        for function in functions.rev() {
            seen.insert(*function);
            let kernel = function.module == KERNEL;
            if in_kernel != Some(kernel) {
                chain.push(if kernel { IN_KERNEL } else { IN_USER });
                in_kernel = Some(kernel);
            }
            chain.push(address(*function));
        }
        let ip = chain.get(1).copied().unwrap_or(0);
        record.begin(9, if ip >> 63 == 1 { 1 } else { 2 });
        record.words(&[ID, ip]);
        record.halves(&[pid, pid + sample.thread]);
        record.words(&[time]);
        record.halves(&[sample.cpu, 0]);
        record.words(&[PERIOD, chain.len() as u64]);
        record.words(&chain);
        failed = writer.write(record.end()).err();
        time += step;
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    features.imported = Some(names(fleet, profile, &seen));
    writer.finish(&features)?;
    Ok(())
}

/// Adds the fields at the end of a record that is no sample.
fn trailer(record: &mut Record, pid: u32, tid: u32) {
    record.halves(&[pid, tid]);
    record.words(&[CLOCK - 1]);
    record.halves(&[0, 0]);
    record.words(&[ID]);
}

fn address(function: Function) -> u64 {
    let start = match function.module {
        KERNEL => KERNEL_START,
        module => START + u64::from(module) * DISTANCE,
    };
    start + u64::from(function.number) * SIZE
}

/// Returns the names of the functions that a profile has seen.
fn names(fleet: &Fleet, profile: &Profile, seen: &BTreeSet<Function>) -> ImportedNames {
    let service = fleet.service(profile.service);
    let mut names = ImportedNames {
        format: "synthetic fleet".to_owned(),
        ..ImportedNames::default()
    };
    for module in &service.modules {
        names.modules.push(ImportedModule::new(module.path.clone()));
    }
    for (index, function) in (0_u32..).zip(seen) {
        let name = service.function_name(*function, profile.build);
        names.functions.push(ImportedFunction {
            name: name.as_str().into(),
            link_name: name.into(),
        });
        let own = address(*function);
        // Addresses of the kernel are relative to nothing.
        let relative = match function.module {
            KERNEL => own,
            _ => own % DISTANCE,
        };
        let frame = ImportedFrame {
            function: index,
            file: None,
            line: None,
        };
        let module = &mut names.modules[usize::from(function.module)];
        module.add(relative, ImportedRole::Executes, &[frame]);
    }
    names.modules.iter_mut().for_each(ImportedModule::sort);
    names
}
