//! Records traces of test programs and reads them, simply and slowly.

// No test uses all of it.
#![allow(dead_code)]

pub mod trees;

use dioptra_calls::{CallEnding, WalkStep};
use dioptra_filters::{MatchStyle, RuleOption};
use dioptra_testprograms::{Language, Program, Skip};
use dioptra_trace_recorder::{
    Choice, Everything, LibraryCalls, PatchPatterns, RuleSelector, TraceOutcome, TraceSpec, record,
};
use dioptra_tracelayout::chunk::Chunk;
use dioptra_tracelayout::directory::{FUNCTION_ENTRY_SIZE, FUNCTIONS, JOURNAL, NAMES, RECORDS};
use dioptra_tracelayout::{Decoder, FunctionEntry, FunctionKind, Record};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

/// A way to make functions traceable: a name, flags, and whether functions are patched that no compiler prepared.
pub const METHODS: [(&str, &[&str], bool); 6] = [
    ("patchable", &["-fpatchable-function-entry=5"], false),
    ("fentry", &["-pg", "-mfentry"], false),
    ("mcount", &["-pg"], false),
    ("plain", &[], true),
    ("cygprof", &["-finstrument-functions"], false),
    (
        "xray",
        &["-fxray-instrument", "-fxray-instruction-threshold=1"],
        false,
    ),
];

/// The functions of `trace-trees`.
pub const TREES: [&str; 11] = [
    "root", "round_of", "many", "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7",
];

/// A test program, built with debug information and nothing else but these flags.
pub fn built(language: Language, name: &str, flags: &[&[&str]]) -> Result<PathBuf, Skip> {
    let program = Program::new(language, name).no_flags().flags(["-g"]);
    program.flags(flags.concat()).build()
}

/// Returns a selector with these rules and without library calls: for functions with these names, or for all that a
/// compiler has prepared.
pub fn by_rules(names: Option<&str>, texts: &[(RuleOption, &str)]) -> Box<RuleSelector> {
    let mut patches = PatchPatterns::new(MatchStyle::Regex);
    if let Some(names) = names {
        // Functions that call the tracer themselves are traced as well, unless they are left out first.
        patches.unpatch(".").unwrap();
        patches.patch(names).unwrap();
    }
    let choice = Choice {
        patches,
        rules: texts.iter().map(|(o, t)| (*o, (*t).to_owned())).collect(),
        style: MatchStyle::Regex,
        library_calls: LibraryCalls::None,
        typed_values: false,
    };
    Box::new(RuleSelector::new(choice).unwrap())
}

/// Returns the choice of all instrumented functions, or with `plain` of all functions of the program, without library
/// calls.
pub fn everything(plain: bool) -> Everything {
    Everything {
        plain,
        plain_libraries: false,
        library_calls: false,
    }
}

/// The lock of the recordings. Signals and the like belong to the process, so tests record one after the other.
static ONE: Mutex<()> = Mutex::new(());

/// Waits for the turn of a test.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Entry(String),
    Exit(String),
    Unwound(String),
    /// The execution was judged at its end. Neither it nor the calls in it are to be shown.
    Discarded(String),
    Lost(u64),
}

/// A trace that was read.
#[derive(Debug, Default)]
pub struct Trace {
    /// The streams, by number.
    pub streams: BTreeMap<u32, Stream>,
}

#[derive(Debug, Default)]
pub struct Stream {
    pub pid: u32,
    pub tid: u32,
    pub parent: u32,
    pub events: Vec<Event>,
    /// For each event, the number of counted calls that were open before it on the same call stack.
    pub depths: Vec<usize>,
    /// Calls that are open at the end.
    pub open: Vec<String>,
    /// The number of open calls that are counted.
    counted: usize,
    next: u32,
    /// The call stack that the stream is on. The open calls of the other stacks are in `others`.
    stack: u32,
    others: HashMap<u32, Vec<String>>,
}

impl Stream {
    fn happens(&mut self, event: Event) {
        self.events.push(event);
        self.depths.push(self.counted);
    }

    fn recount(&mut self, is_counted: &impl Fn(&str) -> bool) {
        self.counted = self.open.iter().filter(|name| is_counted(name)).count();
    }

    fn push(&mut self, name: String, is_counted: &impl Fn(&str) -> bool) {
        self.counted += usize::from(is_counted(&name));
        self.open.push(name);
    }

    fn pop(&mut self, is_counted: &impl Fn(&str) -> bool) -> Option<String> {
        let name = self.open.pop()?;
        self.counted -= usize::from(is_counted(&name));
        Some(name)
    }
}

/// Records a command whose output goes to a file.
pub fn trace(
    folder: &Path,
    command: &[&str],
    choice: Everything,
    change: impl FnOnce(&mut TraceSpec),
) -> (TraceOutcome, String) {
    let output = folder.join("output");
    // The program would inherit the test's standard output, so a shell sends it to a file.
    let mut words = vec![
        "/bin/sh".into(),
        "-c".into(),
        "out=$1; shift; exec \"$@\" > \"$out\"".into(),
        "sh".into(),
        output.clone().into_os_string(),
    ];
    words.extend(command.iter().map(Into::into));
    let mut spec = TraceSpec::new(words, folder.join("trace"));
    spec.selector = Box::new(choice);
    change(&mut spec);
    let outcome = record(spec).unwrap();
    let output = fs::read(&output).unwrap_or_default();
    (outcome, String::from_utf8_lossy(&output).into_owned())
}

/// Reads a trace, and counts all calls.
pub fn read(folder: &Path) -> Trace {
    read_counting(folder, |_| true)
}

/// Reads a trace, and counts some functions' calls.
pub fn read_counting(folder: &Path, is_counted: impl Fn(&str) -> bool) -> Trace {
    let folder = folder.join("trace");
    let journal = fs::read_to_string(folder.join(JOURNAL)).unwrap();
    let names = function_names(&folder, &journal).unwrap();
    let records = fs::read(folder.join(RECORDS)).unwrap();
    let mut rest = &records[..];
    let mut trace = Trace::default();
    while !rest.is_empty() {
        let chunk = Chunk::parse(rest).unwrap();
        rest = &rest[chunk.header.size as usize..];
        let header = chunk.header;
        let stream = trace.streams.entry(header.stream).or_default();
        assert_eq!(
            header.sequence, stream.next,
            "chunks of a stream are in order"
        );
        stream.next += 1;
        let open: Vec<String> = chunk.open().map(|id| names[id as usize].clone()).collect();
        // A chunk names another stack than the first in its first record.
        let first = Decoder::new(chunk.records, header.base).next();
        let stack = match first {
            Some(Ok(Record::Stack { stack, .. })) => stack,
            _ => 0,
        };
        let listed = stack == stream.stack || header.sequence == 0;
        if header.sequence == 0 {
            (stream.pid, stream.tid) = (header.pid, header.tid);
            stream.parent = header.parent;
            stream.open.clone_from(&open);
            stream.stack = stack;
        }
        if !listed {
            // The switch itself comes first, and the list is that of the stack that is left.
        } else if header.lost > 0 {
            stream.happens(Event::Lost(header.lost.into()));
            // A chunk lists only the innermost calls of a deep stack. Calls further out that were known before may
            // still be open.
            let unlisted = header.depth as usize - open.len();
            stream.open.resize(unlisted, "?".to_owned());
            stream.open.extend(open);
        } else {
            assert_eq!(
                stream.open.len(),
                header.depth as usize,
                "depth of chunk {header:?}"
            );
            let from = stream.open.len() - open.len();
            for (known, listed) in stream.open[from..].iter_mut().zip(&open) {
                assert!(known == listed || known == "?", "open calls of {header:?}");
                known.clone_from(listed);
            }
        }
        stream.recount(&is_counted);
        let mut time = header.base;
        let mut decoder = Decoder::new(chunk.records, header.base);
        for record in decoder.by_ref() {
            match record.unwrap() {
                Record::Entry {
                    time: now,
                    function,
                } => {
                    assert!(now >= time, "time goes on");
                    time = now;
                    let name = names[function as usize].clone();
                    stream.happens(Event::Entry(name.clone()));
                    stream.push(name, &is_counted);
                }
                Record::Exit { time: now } => {
                    assert!(now >= time, "time goes on");
                    time = now;
                    let name = stream.pop(&is_counted).expect("an exit without a call");
                    stream.happens(Event::Exit(name));
                }
                Record::Discarded { time: now } => {
                    assert!(now >= time, "time goes on");
                    time = now;
                    let name = stream.pop(&is_counted).expect("an exit without a call");
                    stream.happens(Event::Discarded(name));
                }
                Record::Unwound { calls, .. } => {
                    for _ in 0..calls {
                        let name = stream.pop(&is_counted).expect("unwound without a call");
                        stream.happens(Event::Unwound(name));
                    }
                }
                Record::Stack { stack, .. } if stack == stream.stack => {}
                Record::Stack { stack, .. } => {
                    let before = std::mem::replace(&mut stream.stack, stack);
                    let open = std::mem::take(&mut stream.open);
                    stream.others.insert(before, open);
                    stream.open = stream.others.remove(&stack).unwrap_or_default();
                    stream.recount(&is_counted);
                }
                Record::Lost { records } => stream.happens(Event::Lost(records)),
                other => panic!("{other:?}"),
            }
        }
        if header.last != 0 {
            assert_eq!(header.last, decoder.time(), "the last record's time");
        }
    }
    trace
}

/// Returns for each stream the events that the crates' own readers find, with the number of open calls.
pub fn walked(folder: &Path) -> BTreeMap<u32, Vec<(Event, usize)>> {
    let folder = folder.join("trace");
    let journal = fs::read_to_string(folder.join(JOURNAL)).unwrap();
    let names = function_names(&folder, &journal).unwrap();
    let trace = dioptra_tracedata::Trace::open(&folder).unwrap();
    let of_stream = |stream: &dioptra_tracedata::Stream| {
        let mut events = Vec::new();
        for step in dioptra_calls::StreamWalk::new(&trace, stream) {
            match step {
                WalkStep::Enter { call, .. } => events.push((
                    Event::Entry(names[call.function as usize].clone()),
                    call.depth as usize,
                )),
                WalkStep::Leave { call, ending, .. } => {
                    let name = names[call.function as usize].clone();
                    let event = match ending {
                        CallEnding::Returned => Event::Exit(name),
                        CallEnding::Unwound(_) => Event::Unwound(name),
                        CallEnding::Discarded => Event::Discarded(name),
                        _ => Event::Lost(0),
                    };
                    events.push((event, call.depth as usize));
                }
                WalkStep::Lost { records, .. } => events.push((Event::Lost(records), 0)),
                WalkStep::Switch { .. } => {}
            }
        }
        events
    };
    let streams = trace.streams().iter();
    streams.map(|s| (s.stream, of_stream(s))).collect()
}

/// Returns the functions of which only chosen executions were recorded.
#[allow(dead_code, reason = "not all tests sample")]
pub fn sampled(folder: &Path) -> BTreeSet<String> {
    let folder = folder.join("trace");
    let journal = fs::read_to_string(folder.join(JOURNAL)).unwrap();
    let names = function_names(&folder, &journal).unwrap();
    journal
        .lines()
        .filter_map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let functions = value.get("sampled")?["functions"].as_array()?.clone();
            Some(functions)
        })
        .flatten()
        .map(|id| names[id.as_u64().unwrap() as usize].clone())
        .collect()
}

/// Returns the numbers of executions of sampled functions that were counted and chosen in all threads, by name.
#[allow(dead_code, reason = "not all tests sample")]
pub fn counted(folder: &Path) -> BTreeMap<String, (u64, u64)> {
    let folder = folder.join("trace");
    let journal = fs::read_to_string(folder.join(JOURNAL)).unwrap();
    let names = function_names(&folder, &journal).unwrap();
    let mut counts = BTreeMap::<String, (u64, u64)>::new();
    for line in journal.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let functions = value.get("counted").and_then(|c| c["functions"].as_array());
        for function in functions.into_iter().flatten() {
            let number = |field: &str| function[field].as_u64().unwrap();
            let name = names[number("function") as usize].clone();
            let sum = counts.entry(name).or_default();
            *sum = (sum.0 + number("seen"), sum.1 + number("shown"));
        }
    }
    counts
}

/// Returns the same events as [`walked`], by thread id.
pub fn walked_threads(folder: &Path) -> HashMap<u32, Vec<Event>> {
    let trace = dioptra_tracedata::Trace::open(&folder.join("trace")).unwrap();
    let mut walked = walked(folder);
    let streams = trace.streams().iter();
    let mut events = |stream: u32| {
        let events = walked.remove(&stream).unwrap_or_default();
        events.into_iter().map(|(event, _)| event).collect()
    };
    streams.map(|s| (s.tid, events(s.stream))).collect()
}

/// Returns the names of all function ids.
fn function_names(folder: &Path, journal: &str) -> io::Result<Vec<String>> {
    let texts = fs::read(folder.join(NAMES))?;
    let mut modules = HashMap::new();
    for line in journal.lines() {
        let value: serde_json::Value = serde_json::from_str(line)?;
        if let Some(module) = value.get("module") {
            let path = module["path"].as_str().unwrap_or_default().to_owned();
            modules.insert(
                module["module"].as_u64().unwrap_or(0) as u32,
                symbols(&path)?,
            );
        }
    }
    Ok(fs::read(folder.join(FUNCTIONS))?
        .chunks_exact(FUNCTION_ENTRY_SIZE)
        .map(|bytes| {
            let entry = FunctionEntry::from_bytes(bytes.try_into().unwrap());
            match entry.kind {
                FunctionKind::Function => modules[&entry.module]
                    .get(&entry.place)
                    .cloned()
                    .unwrap_or_else(|| format!("{:#x}", entry.place)),
                FunctionKind::LibraryCall => {
                    let start = entry.place as usize;
                    String::from_utf8_lossy(&texts[start..start + entry.size as usize]).into_owned()
                }
                _ => String::new(),
            }
        })
        .collect())
}

/// Returns the names of functions by file offset, without C++'s decoration.
fn symbols(path: &str) -> io::Result<HashMap<u64, String>> {
    let data = fs::read(path)?;
    let file = object::File::parse(&*data).map_err(io::Error::other)?;
    let offset = |address: u64| {
        file.segments()
            .find(|segment| {
                (segment.address()..segment.address() + segment.size()).contains(&address)
            })
            .map(|segment| address - segment.address() + segment.file_range().0)
    };
    Ok(file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| Some((offset(symbol.address())?, plain_name(symbol.name().ok()?))))
        .collect())
}

/// Returns `leaf` for `_Z4leafi`.
fn plain_name(symbol: &str) -> String {
    let plain = || {
        let rest = symbol
            .strip_prefix("_ZL")
            .or_else(|| symbol.strip_prefix("_Z"))?;
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let length: usize = rest[..digits].parse().ok()?;
        Some(rest.get(digits..digits + length)?.to_owned())
    };
    plain().unwrap_or_else(|| symbol.to_owned())
}

/// Returns the events of functions that log their beginnings and ends, as they log them.
pub fn as_log(events: &[Event], functions: &[&str]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Entry(name) if functions.contains(&name.as_str()) => Some(format!("+{name}")),
            Event::Exit(name) if functions.contains(&name.as_str()) => Some(format!("-{name}")),
            _ => None,
        })
        .collect()
}
