//! Unwinds all stacks of a recording made with `perf record --call-graph dwarf`, and tells how they ended and how long
//! that took: `cargo run --release --example stacks -- FILE`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::Record;
use dioptra_symbols::{
    AddressSpace, FileMapping, FileOffset, MemoryAddress, ModuleKind, ModuleRequest, StackUnwinder,
    SymbolOptions, UnwindCache, UnwindMachine, UnwindMapping, UserRegisters,
};

/// `PROT_EXEC`.
const EXECUTABLE: u32 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file?")?;
    let recording = PerfData::open(path.as_ref())?;
    let machine = UnwindMachine::native().ok_or("no unwinder for this machine")?;
    let unwinder = StackUnwinder::new(SymbolOptions::default());
    let mut spaces: HashMap<u32, AddressSpace> = HashMap::new();
    let mut cache = UnwindCache::default();
    let mut frames = Vec::new();
    let mut ends = HashMap::new();
    let (mut samples, mut depth, mut time) = (0_u64, 0, Duration::ZERO);
    recording.read(|record| {
        let Some(layout) = recording.layout(record.event) else {
            return ControlFlow::Continue(());
        };
        match layout.parse(&record.raw) {
            Ok(Record::Fork(task, _)) if task.pid != task.parent_pid => {
                if let Some(parent) = spaces.get(&task.parent_pid).cloned() {
                    spaces.insert(task.pid, parent);
                }
            }
            Ok(Record::Comm(comm, _)) if comm.exec => {
                spaces.remove(&comm.pid);
            }
            Ok(Record::Mmap(mmap, _)) if mmap.pid != u32::MAX => {
                let space = spaces
                    .entry(mmap.pid)
                    .or_insert_with(|| AddressSpace::new(machine));
                let start = MemoryAddress(mmap.start);
                let end = MemoryAddress(mmap.start.saturating_add(mmap.length));
                if mmap
                    .protection
                    .is_some_and(|(bits, _)| bits & EXECUTABLE == 0)
                {
                    space.unmap(start, end);
                    return ControlFlow::Continue(());
                }
                let path = PathBuf::from(String::from_utf8_lossy(mmap.name).into_owned());
                let mapping = UnwindMapping {
                    mapping: FileMapping {
                        start,
                        end,
                        file_offset: FileOffset(mmap.page_offset),
                    },
                    module: ModuleRequest {
                        kind: ModuleKind::of_mapping(&path),
                        path: &path,
                        build_id: None,
                    },
                };
                space.map(&unwinder, &mapping);
            }
            Ok(Record::Sample(sample)) => {
                let (Some(registers), Some(stack)) = (sample.regs_user, sample.stack_user) else {
                    return ControlFlow::Continue(());
                };
                let registers = UserRegisters::of_sample(machine, |number| registers.get(number));
                let space = sample.pid.and_then(|pid| spaces.get(&pid));
                if let (Some(registers), Some(space)) = (registers, space) {
                    let start = Instant::now();
                    let end = space.unwind(&registers, stack.bytes, &mut cache, &mut frames);
                    time += start.elapsed();
                    *ends.entry(end).or_insert(0_u64) += 1;
                    samples += 1;
                    depth += frames.len();
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    println!(
        "{samples} samples, {:.1} frames each, {time:?}: {:.0} samples/s; {ends:?}; {} KiB of tables",
        depth as f64 / samples.max(1) as f64,
        samples as f64 / time.as_secs_f64().max(1e-9),
        unwinder.heap_bytes() / 1024,
    );
    for note in unwinder.notes() {
        println!("{note}");
    }
    Ok(())
}
