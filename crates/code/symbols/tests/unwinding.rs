//! Call stacks as perf finds them in the same recording.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::Record;
use dioptra_symbols::{
    AddressSpace, FileMapping, FileOffset, MemoryAddress, ModuleKind, ModuleRequest, Note,
    StackEnd, StackUnwinder, SymbolOptions, UnwindCache, UnwindMachine, UnwindMapping,
    UserRegisters,
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
                    space.unmap(MemoryAddress(mmap.start), MemoryAddress(end));
                    return ControlFlow::Continue(());
                }
                let path = Path::new(&name);
                space.map(
                    &unwinder,
                    &UnwindMapping {
                        mapping: FileMapping {
                            start: MemoryAddress(mmap.start),
                            end: MemoryAddress(end),
                            file_offset: FileOffset(mmap.page_offset),
                        },
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
                    let address = frame.0 - u64::from(at > 0);
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

/// Compares perf's stacks with ours and prints those that differ.
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
            dioptra_testprograms::skip(format!("perf took {all} samples"));
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

/// Exceptions through several threads.
const THROWING: &str = r#"
#include <stdexcept>
#include <thread>
#include <vector>
__attribute__((noinline)) long thrower(long n) {
  volatile long s = 0;
  for (long i = 0; i < 3000; i++) s += i;
  if (n % 3) throw std::runtime_error("no");
  return s;
}
struct Guard { long *at; ~Guard() { for (volatile int i = 0; i < 500; i++) ++*at; } };
__attribute__((noinline)) long catcher(long n, int depth) {
  long count = 0;
  Guard guard{&count};
  if (depth) return catcher(n, depth - 1) + 1;
  try { return thrower(n); } catch (const std::exception &) { return count; }
}
int main() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++) threads.emplace_back([t] {
    volatile long s = 0;
    for (long i = 0; i < 15000; i++) s += catcher(i + t, 6);
  });
  for (auto &thread : threads) thread.join();
}
"#;

/// A handler that works on signals which interrupt a function between any two instructions.
const SIGNALS: &str = r#"
#include <csignal>
#include <cstdio>
#include <sys/time.h>
#include <time.h>
volatile long handled, worked;
__attribute__((noinline)) void handle_deep(int depth) {
  if (depth) { handle_deep(depth - 1); handled++; return; }
  for (volatile int i = 0; i < 200000; i++) handled++;
}
extern "C" void handler(int) { handle_deep(3); worked++; }
__attribute__((noinline)) void interrupted(int depth) {
  if (depth) { interrupted(depth - 1); worked++; return; }
  timespec now;
  for (int i = 0; i < 20000; i++) { worked++; clock_gettime(CLOCK_MONOTONIC, &now); worked += now.tv_nsec; }
}
int main() {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(SIGALRM, &action, nullptr);
  // No multiple of the time between samples, or the handler may never be seen.
  itimerval every{{0, 1730}, {0, 1730}};
  setitimer(ITIMER_REAL, &every, nullptr);
  for (int i = 0; i < 300; i++) interrupted(5);
  printf("%ld\n", handled + worked);
}
"#;

/// Opens one library after the other, and works in each.
const OPENING: &str = r#"
#include <cstdio>
#include <dlfcn.h>
int main(int count, char **names) {
  volatile long sum = 0;
  for (int i = 1; i < count; i++) {
    void *library = dlopen(names[i], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    auto work = (long (*)(long))dlsym(library, "work");
    sum += work(300000);
  }
}
"#;

const LIBRARY: &str = r#"
static __attribute__((noinline)) long deep(long n, int depth) {
  volatile long s = 0;
  if (depth) { s = deep(n, depth - 1); return s + 1; }
  for (long i = 0; i < n; i++) s += i;
  return s;
}
extern "C" long work(long n) { return deep(n, 12) + 1; }
"#;

const RUST: &str = r#"
use std::collections::BTreeMap;
fn add(tree: &mut BTreeMap<String, u64>, depth: u32, seed: u64) {
    if depth > 0 { return add(tree, depth - 1, seed.wrapping_mul(6364136223846793005).wrapping_add(1)); }
    *tree.entry(format!("{seed:x}")).or_default() += seed;
}
fn main() {
    let mut tree = BTreeMap::new();
    for seed in 0..150_000 { add(&mut tree, 8, seed); }
    let caught = std::panic::catch_unwind(|| tree.values().fold(0u64, |a, b| a ^ b));
    println!("{caught:?}");
}
"#;

/// Writes a program and compiles it.
fn compile(dir: &Path, name: &str, source: &str, compiler: &[&str]) -> Option<PathBuf> {
    let input = dir
        .join(name)
        .with_extension(if compiler[0] == "rustc" { "rs" } else { "cc" });
    std::fs::write(&input, source).unwrap();
    let output = dir.join(name);
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .arg(&input)
        .arg("-o")
        .arg(&output);
    output_of(&mut command).map(|_| output)
}

/// Records a program; at least `part` of a hundred of its stacks must be perf's. What else there is was looked at, and
/// each caller of this says why it may differ.
fn same_as_perf(dir: &Path, command: &[&str], part: usize) -> Option<Ours> {
    let file = record(dir, 16384, command)?;
    let (same, all, ours) = compare(&file)?;
    if all < 10 {
        dioptra_testprograms::skip(format!("perf took {all} samples"));
        return None;
    }
    assert!(same * 100 >= all * part, "{command:?}: {same} of {all}");
    Some(ours)
}

#[test]
fn stacks_of_exceptions_and_threads_are_perfs() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["g++", "-O2", "-pthread"];
    let Some(program) = compile(dir.path(), "throwing", THROWING, &flags) else {
        return;
    };
    if let Some(ours) = same_as_perf(dir.path(), &[program.to_str().unwrap()], 90) {
        let within = |name: &str| {
            let holds = |stack: &&Stack| stack.iter().any(|(module, _)| module.contains(name));
            ours.stacks.values().filter(holds).count()
        };
        assert!(
            within("libgcc_s") > 0,
            "the search for a handler was sampled"
        );
    }
}

#[test]
fn rust_stacks_are_perfs() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["rustc", "--edition", "2021", "-O"];
    let Some(program) = compile(dir.path(), "rusty", RUST, &flags) else {
        return;
    };
    same_as_perf(dir.path(), &[program.to_str().unwrap()], 90);
}

#[test]
fn stacks_within_signal_handlers_are_perfs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile(dir.path(), "signals", SIGNALS, &["g++", "-O1"]) else {
        return;
    };
    let Some(ours) = same_as_perf(dir.path(), &[program.to_str().unwrap()], 97) else {
        return;
    };
    // The code that the signal interrupted, often the vdso's, stands between the handler's frames and its callers'.
    let in_vdso = |stack: &&Stack| stack.iter().skip(1).any(|(module, _)| module == "[vdso]");
    assert!(ours.stacks.values().filter(in_vdso).count() > 0);
    // Handler, its callers and what it interrupted, all the way: twelve frames of the program's own.
    let own = |stack: &&Stack| {
        let of_program = |(module, _): &&(String, u64)| module.ends_with("signals");
        stack.iter().filter(of_program).count() >= 10
    };
    assert!(ours.stacks.values().filter(own).count() > 0);
}

#[test]
fn libraries_that_are_opened_one_by_one_are_unwound() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile(dir.path(), "opening", OPENING, &["g++", "-O1"]) else {
        return;
    };
    let flags = ["g++", "-O1", "-shared", "-fPIC"];
    let Some(library) = compile(dir.path(), "library", LIBRARY, &flags) else {
        return;
    };
    let mut command = vec![program.to_str().unwrap().to_owned()];
    for number in 0..80 {
        let copy = dir.path().join(format!("library{number}.so"));
        std::fs::copy(&library, &copy).unwrap();
        command.push(copy.to_str().unwrap().to_owned());
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    if let Some(ours) = same_as_perf(dir.path(), &command, 90) {
        let in_libraries = ours.stacks.values().filter(|stack| {
            let in_library = |(module, _): &&(String, u64)| module.contains("/library");
            stack.iter().filter(in_library).count() >= 14
        });
        assert!(in_libraries.count() > 0);
    }
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
        return dioptra_testprograms::skip(format!("perf took {} samples", ours.stacks.len()));
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
                    mapping: FileMapping {
                        start: MemoryAddress(start),
                        end: MemoryAddress(start.saturating_add(1 << (random() % 40))),
                        file_offset: FileOffset(random() >> 40),
                    },
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
        space.unmap(MemoryAddress(random() >> 10), MemoryAddress(random() >> 4));
    }
    let arm = UserRegisters::of_sample(UnwindMachine::Aarch64, |_| Some(0x10000)).unwrap();
    let end = space.unwind(&arm, &[], &mut cache, &mut frames);
    assert_eq!(end, StackEnd::WrongMachine);
}
