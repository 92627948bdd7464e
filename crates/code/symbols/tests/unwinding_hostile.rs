//! Registers, stacks and mappings of any sort: unwinding ends, and its result depends on nothing else.
#![allow(clippy::unwrap_used)]

use dioptra_symbols::{
    AddressSpace, FileMapping, FileOffset, MemoryAddress, ModuleKind, ModuleRequest, StackEnd,
    StackUnwinder, UnwindCache, UnwindMachine, UnwindMapping, UserRegisters,
};
use proptest::prelude::*;
use std::path::Path;

/// More frames are not kept of a stack.
const MOST_FRAMES: usize = 1024;

/// Addresses where something goes wrong: around nothing, the ends of what is mapped, of the stack, of the numbers.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0x5000_0000_u64..0x5100_0000,
        2 => 0x7fff_0000_u64..0x7fff_2000,
        1 => any::<u64>(),
        1 => 0_u64..0x3000,
        1 => (1_u64 << 62) - 16..(1 << 62) + 16,
        1 => u64::MAX - 64..=u64::MAX,
    ]
}

/// Start, length, offset in the file, and which file.
fn mapping() -> impl Strategy<Value = (u64, u64, u64, usize)> {
    let length = prop_oneof![0_u64..0x100_0000, any::<u64>()];
    let offset = prop_oneof![
        Just(0),
        (0_u64..256).prop_map(|page| page << 12),
        any::<u64>()
    ];
    (address(), length, offset, 0_usize..4)
}

#[derive(Debug, Clone)]
struct Process {
    mappings: Vec<(u64, u64, u64, usize)>,
    unmapped: Option<(u64, u64)>,
}

fn process() -> impl Strategy<Value = Process> {
    (
        prop::collection::vec(mapping(), 0..6),
        prop::option::of((address(), address())),
    )
        .prop_map(|(mappings, unmapped)| Process { mappings, unmapped })
}

#[derive(Debug, Clone)]
struct Sampled {
    registers: [u64; 4],
    stack: Vec<u64>,
    /// Bytes cut off the end.
    cut: usize,
}

fn sampled() -> impl Strategy<Value = Sampled> {
    (
        [address(), address(), address(), address()],
        prop::collection::vec(address(), 0..200),
        0_usize..8,
    )
        .prop_map(|(registers, stack, cut)| Sampled {
            registers,
            stack,
            cut,
        })
}

impl Sampled {
    fn registers(&self, machine: UnwindMachine) -> UserRegisters {
        let [ip, sp, bp, lr] = self.registers;
        UserRegisters::of_sample(machine, |number| {
            Some(match (machine, number) {
                (UnwindMachine::X86_64, 8) | (UnwindMachine::Aarch64, 32) => ip,
                (UnwindMachine::X86_64, 7) | (UnwindMachine::Aarch64, 31) => sp,
                (UnwindMachine::X86_64, 6) | (UnwindMachine::Aarch64, 29) => bp,
                _ => lr,
            })
        })
        .unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self
            .stack
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes.truncate(bytes.len().saturating_sub(self.cut));
        bytes
    }
}

/// This test, the C library, the vdso, and what is no file.
fn request(index: usize, executable: &Path) -> ModuleRequest<'_> {
    let (kind, path) = match index {
        0 => (ModuleKind::File, executable),
        1 => (
            ModuleKind::File,
            Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
        ),
        2 => (ModuleKind::Vdso, Path::new("[vdso]")),
        _ => (ModuleKind::NotAFile, Path::new("//anon")),
    };
    ModuleRequest {
        kind,
        path,
        build_id: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_stack_ends(
        processes in prop::collection::vec(process(), 1..3),
        samples in prop::collection::vec(sampled(), 1..12),
    ) {
        use std::sync::LazyLock;
        // The tables are read once: they are the same in all cases.
        static UNWINDER: LazyLock<StackUnwinder> = LazyLock::new(StackUnwinder::default);
        let executable = std::env::current_exe().unwrap();
        let mut shared = UnwindCache::default();
        let (mut frames, mut again) = (Vec::new(), Vec::new());
        for machine in [UnwindMachine::X86_64, UnwindMachine::Aarch64] {
            for process in &processes {
                let mut space = AddressSpace::new(machine);
                for &(start, length, file_offset, module) in &process.mappings {
                    space.map(&UNWINDER, &UnwindMapping {
                        mapping: FileMapping {
                            start: MemoryAddress(start),
                            end: MemoryAddress(start.saturating_add(length)),
                            file_offset: FileOffset(file_offset),
                        },
                        module: request(module, &executable),
                    });
                }
                if let Some((start, end)) = process.unmapped {
                    space.unmap(MemoryAddress(start), MemoryAddress(end));
                }
                for sample in &samples {
                    let registers = sample.registers(machine);
                    let bytes = sample.bytes();
                    let end = space.unwind(&registers, &bytes, &mut shared, &mut frames);
                    prop_assert!((1..=MOST_FRAMES).contains(&frames.len()));
                    prop_assert_eq!(frames[0], MemoryAddress(sample.registers[0]));
                    prop_assert!(end != StackEnd::WrongMachine);
                    // Entries of other processes and samples in the cache change nothing.
                    let fresh = &mut UnwindCache::default();
                    prop_assert_eq!(space.unwind(&registers, &bytes, fresh, &mut again), end);
                    prop_assert_eq!(&again, &frames);
                }
            }
        }
    }
}
