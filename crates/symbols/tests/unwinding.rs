//! Call stacks as perf finds them in the same recording.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_perfdata::PerfData;
use dioptra_perfevents::record::Record;
use dioptra_symbols::{
    AddressSpace, ModuleKind, ModuleRequest, Note, StackEnd, StackUnwinder, SymbolOptions,
    UnwindCache, UnwindMachine, UnwindMapping, UserRegisters,
};
use support::output_of;

const DEEP: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <vector>
struct Node { Node *left, *right; int value; };
__attribute__((noinline)) long walk(Node *n, int depth) {
  volatile char pad[24]; pad[0] = depth;
  if (!n) return 0;
  long s = n->value + pad[0];
  s += walk(n->left, depth + 1); s += walk(n->right, depth + 1);
  return s;
}
__attribute__((noinline)) Node *grow(int depth) {
  if (!depth) return nullptr;
  return new Node{grow(depth - 1), grow(depth - 1), depth};
}
static int by(const void *a, const void *b) {
  volatile int s = 0;
  for (int i = 0; i < 20; i++) s += i;
  return *(const int *)a - *(const int *)b;
}
int main() {
  long sum = 0;
  Node *tree = grow(12);
  for (int round = 0; round < 60; round++) {
    sum += walk(tree, 0);
    std::vector<int> v(5000);
    for (auto &x : v) x = rand();
    qsort(v.data(), v.size(), sizeof(int), by);
    sum += v[5];
  }
  printf("%ld\n", sum);
}
"#;

/// A stack: thread, time, and the user frames as module and file offset, innermost first.
type Stack = Vec<(String, u64)>;
/// Start, end, file offset and name of a mapping.
type Mapped = (u64, u64, u64, String);
type Stacks = HashMap<(u32, u64), Stack>;

/// Records a command with copies of its stack; nothing when perf can't.
fn record(dir: &Path, bytes: u32, command: &[&str]) -> Option<PathBuf> {
    let file = dir.join("perf.data");
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-N",
        "-B",
        "-e",
        "cpu-clock",
        "-c",
        "500000",
    ])
    .arg(format!("--call-graph=dwarf,{bytes}"))
    .arg("-o")
    .arg(&file)
    .arg("--")
    .args(command)
    .env("HOME", dir);
    output_of(&mut perf)?;
    Some(file)
}

/// perf's stacks.
fn perf_stacks(file: &Path) -> Option<Stacks> {
    let mut perf = Command::new("perf");
    perf.args([
        "script",
        "--ns",
        "--no-inline",
        "--max-stack",
        "2000",
        "-F",
        "tid,time,ip,sym,dso",
        "-i",
    ])
    .arg(file)
    .env("HOME", file.parent().unwrap());
    let text = output_of(&mut perf)?;
    let mut stacks = Stacks::new();
    let mut stack: Option<((u32, u64), Stack)> = None;
    for line in text.lines() {
        if let Some(frame) = line.strip_prefix('\t') {
            // `   1a303 _dl_sysdep_start (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)`
            let (ip, rest) = frame.trim().split_once(' ').unwrap();
            let ip = u64::from_str_radix(ip, 16).unwrap();
            let module = rest.rsplit_once(" (").unwrap().1.trim_end_matches(')');
            if ip >> 63 == 0
                && let Some((_, stack)) = &mut stack
            {
                stack.push((module.to_owned(), ip));
            }
        } else if line.trim().is_empty() {
            stacks.extend(stack.take());
        } else {
            // `25527  4290.469775673: `
            let mut fields = line.split_whitespace();
            let thread: u32 = fields.next()?.parse().ok()?;
            let (seconds, nanos) = fields.next()?.trim_end_matches(':').split_once('.')?;
            let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?;
            stack = Some(((thread, time), Vec::new()));
        }
    }
    stacks.extend(stack);
    Some(stacks)
}

#[derive(Default)]
struct Ours {
    stacks: Stacks,
    ends: HashMap<StackEnd, usize>,
    notes: Vec<Note>,
}

/// Our stacks of the samples with user registers.
fn our_stacks(file: &Path, options: SymbolOptions) -> Ours {
    let recording = PerfData::open(file).unwrap();
    let unwinder = StackUnwinder::new(options);
    let mut spaces: HashMap<u32, (AddressSpace, Vec<Mapped>)> = HashMap::new();
    let mut cache = UnwindCache::default();
    let mut frames = Vec::new();
    let mut ours = Ours::default();
    let machine = UnwindMachine::native().unwrap();
    recording.read(|record| {
        let layout = recording.layout(record.event).unwrap();
        match layout.parse(&record.raw) {
            Ok(Record::Mmap(mmap, _)) if mmap.pid != u32::MAX => {
                let (space, mappings) = spaces
                    .entry(mmap.pid)
                    .or_insert_with(|| (AddressSpace::new(machine), Vec::new()));
                let name = String::from_utf8_lossy(mmap.name).into_owned();
                let end = mmap.start + mmap.length;
                // perf records data mappings too when it copies stacks.
                if mmap.protection.is_some_and(|(bits, _)| bits & 4 == 0) {
                    space.unmap(mmap.start, end);
                    return ControlFlow::Continue(());
                }
                let path = Path::new(&name);
                space.map(
                    &unwinder,
                    &UnwindMapping {
                        start: mmap.start,
                        end,
                        file_offset: mmap.page_offset,
                        module: ModuleRequest {
                            kind: ModuleKind::of_mapping(path),
                            path,
                            build_id: None,
                        },
                    },
                );
                mappings.push((mmap.start, end, mmap.page_offset, name));
            }
            Ok(Record::Sample(sample)) => {
                let (Some(registers), Some(stack)) = (sample.regs_user, sample.stack_user) else {
                    return ControlFlow::Continue(());
                };
                let registers = UserRegisters::of_sample(machine, |number| registers.get(number));
                let (Some(registers), Some((space, mappings))) =
                    (registers, spaces.get(&sample.pid.unwrap()))
                else {
                    return ControlFlow::Continue(());
                };
                let end = space.unwind(&registers, stack.bytes, &mut cache, &mut frames);
                *ours.ends.entry(end).or_default() += 1;
                let named = frames.iter().enumerate().map(|(at, &frame)| {
                    let address = frame - u64::from(at > 0);
                    let holds = |&&(start, end, ..): &&Mapped| (start..end).contains(&address);
                    match mappings.iter().rev().find(holds) {
                        Some((start, _, offset, name)) => (name.clone(), address - start + offset),
                        None => ("[unknown]".to_owned(), address),
                    }
                });
                ours.stacks
                    .insert((sample.tid.unwrap(), sample.time.unwrap()), named.collect());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    ours.notes = unwinder.notes();
    ours
}

/// What part of perf's stacks is ours too; prints others.
fn compare(file: &Path) -> Option<(usize, usize, Ours)> {
    let perf = perf_stacks(file)?;
    let ours = our_stacks(file, SymbolOptions::default());
    let (mut same, mut all) = (0, 0);
    for (key, theirs) in &perf {
        let Some(stack) = ours.stacks.get(key) else {
            continue;
        };
        all += 1;
        if stack == theirs {
            same += 1;
        } else if all - same < 6 {
            eprintln!("{key:?}:\n  ours {stack:x?}\n  perf {theirs:x?}");
        }
    }
    eprintln!(
        "{same} of {all} stacks are perf's; {:?} {:?}",
        ours.ends, ours.notes
    );
    Some((same, all, ours))
}

fn build(dir: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (input, output) = (dir.join(format!("{name}.cc")), dir.join(name));
    std::fs::write(&input, DEEP).unwrap();
    let mut compiler = Command::new("g++");
    compiler.arg(&input).arg("-o").arg(&output).args(flags);
    output_of(&mut compiler).map(|_| output)
}

#[test]
fn stacks_are_perfs() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [("pie", &["-O2"][..]), ("fixed", &["-O1", "-no-pie"])] {
        let Some(program) = build(dir.path(), name, flags) else {
            return;
        };
        let Some(file) = record(dir.path(), 16384, &[program.to_str().unwrap()]) else {
            return;
        };
        let Some((same, all, ours)) = compare(&file) else {
            return;
        };
        if all < 10 {
            eprintln!("skipped: perf took {all} samples");
            continue;
        }
        assert!(same * 10 >= all * 9, "{name}: {same} of {all}");
        let complete = ours.ends.get(&StackEnd::Complete).copied().unwrap_or(0);
        assert!(complete * 10 >= all * 9, "{name}: {:?}", ours.ends);
        assert!(ours.stacks.values().any(|stack| stack.len() > 10));
    }
}

#[test]
fn python_stacks_are_perfs() {
    let dir = tempfile::tempdir().unwrap();
    let code = "def f(n): return n if n < 2 else f(n-1) + f(n-2)\nf(20)\nsorted(str(i) for i in range(20000))";
    let Some(file) = record(dir.path(), 32768, &["/usr/bin/python3", "-c", code]) else {
        return;
    };
    let Some((same, all, _)) = compare(&file) else {
        return;
    };
    assert!(same * 10 >= all * 8, "{same} of {all}");
}

#[test]
fn a_small_copy_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "short", &["-O2"]) else {
        return;
    };
    let Some(file) = record(dir.path(), 256, &[program.to_str().unwrap()]) else {
        return;
    };
    let ours = our_stacks(&file, SymbolOptions::default());
    eprintln!("{:?}", ours.ends);
    if ours.stacks.len() < 10 {
        eprintln!("skipped: perf took {} samples", ours.stacks.len());
        return;
    }
    assert!(ours.ends.contains_key(&StackEnd::DumpExhausted));
}

#[test]
fn missing_modules_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "gone", &["-O2"]) else {
        return;
    };
    let Some(file) = record(dir.path(), 8192, &[program.to_str().unwrap()]) else {
        return;
    };
    std::fs::remove_file(&program).unwrap();
    let ours = our_stacks(&file, SymbolOptions::default());
    let is_told = |note: &Note| matches!(note, Note::NoFile { path, .. } if *path == program);
    assert!(ours.notes.iter().any(is_told), "{:?}", ours.notes);
    eprintln!("{:?}", ours.ends);
}

#[test]
fn rubbish_ends() {
    let unwinder = StackUnwinder::default();
    let mut cache = UnwindCache::default();
    let mut frames = Vec::new();
    let mut space = AddressSpace::new(UnwindMachine::X86_64);
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let executable = std::env::current_exe().unwrap();
    for round in 0..2000 {
        if round % 40 == 0 {
            let start = random() >> (random() % 60);
            space.map(
                &unwinder,
                &UnwindMapping {
                    start,
                    end: start.saturating_add(1 << (random() % 40)),
                    file_offset: random() >> 40,
                    module: ModuleRequest {
                        kind: ModuleKind::File,
                        path: &executable,
                        build_id: None,
                    },
                },
            );
        }
        let bytes: Vec<u8> = (0..random() % 600).map(|_| random() as u8).collect();
        let sp = random() >> (random() % 64);
        let (bp, ip) = (sp.wrapping_add(random() % 64), random() >> (random() % 64));
        let registers = UserRegisters::of_sample(UnwindMachine::X86_64, |number| {
            Some(match number {
                7 => sp,
                6 => bp,
                _ => ip,
            })
        });
        space.unwind(&registers.unwrap(), &bytes, &mut cache, &mut frames);
        assert!(!frames.is_empty());
        space.unmap(random() >> 10, random() >> 4);
    }
    let arm = UserRegisters::of_sample(UnwindMachine::Aarch64, |_| Some(0x10000)).unwrap();
    let end = space.unwind(&arm, &[], &mut cache, &mut frames);
    assert_eq!(end, StackEnd::WrongMachine);
}
