//! `dioptra trace script`: a Python script's functions, called at the beginning and end of each call.

mod child;
mod feed;

use super::option_file::split;
use super::record::{exit_status, trace};
use super::selected::{Data, Naming, Selected, open, spelled};
use super::{record, summary, usage};
use crate::exit::Exit;
use crate::output::say;
use anyhow::Context;
use child::{About, Answer, Script, has_ended};
use dioptra_calls::{
    Ahead, CallEnding, FunctionNames, OpenCalls, ShownStep, View, ahead, arguments, returned_value,
};
use dioptra_export::function_addresses;
use dioptra_filters::MatchStyle;
use dioptra_trace_recorder::TraceOutcome;
use dioptra_tracedata::{Digits, Trace, Value};
use dioptra_tracelayout::EventPlace;
use feed::{Feed, Step, StepKind};
use serde_json::json;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Arguments of `dioptra trace script`.
#[derive(clap::Args)]
#[command(after_help = "\
A script has some of the functions uftrace_begin(ctx), uftrace_entry(ctx), uftrace_exit(ctx), uftrace_event(ctx) and uftrace_end(). `ctx` is a dictionary: tid, depth, timestamp, address, name; at an exit duration, of an event args; at the beginning record, version, cmds. Times are nanoseconds. UFTRACE_FUNCS, a list of names and patterns, chooses the functions. Scripts of uftrace run as they are.

Exit status: 0, or the script's own (sys.exit), or 1 if it fails.

Examples:
  dioptra trace script -S count.py
  dioptra trace script -S count.py -F main -- some words     words are ctx[\"cmds\"] of uftrace_begin
  dioptra trace script -S count.py --record ./program        trace a command first, and keep nothing")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    naming: Naming,
    /// The script
    #[arg(short = 'S', long, value_name = "FILE", required = true)]
    script: PathBuf,
    /// Trace the command that follows first, with the options of the script's line `# uftrace-option:`
    #[arg(long, requires = "words")]
    record: bool,
    /// The interpreter
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Words for the script, or with --record the command
    #[arg(value_name = "WORDS", trailing_var_arg = true, value_parser = clap::value_parser!(OsString))]
    words: Vec<OsString>,
}

/// The line of a script with options for recording.
const OPTIONS: &str = "uftrace-option:";

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let path = &arguments.script;
    let source = std::fs::read(path).with_context(|| path.display().to_string())?;
    if path.extension().is_some_and(|end| end == "lua") {
        return Err(usage(format_args!(
            "{}: scripts in Lua are not run; write it in Python",
            path.display()
        )));
    }
    if !arguments.record {
        let trace = arguments.data.open()?;
        return on_trace(&arguments, &trace);
    }
    let folder = tempfile::Builder::new()
        .prefix("dioptra-script-")
        .tempdir()
        .context("making a directory for the trace; set TMPDIR to a place with room")?;
    let data = folder.path().join("trace");
    let outcome = match record_first(&arguments, &source, data.clone())? {
        Ok(outcome) => outcome,
        Err(status) => return Ok(status),
    };
    summary::warnings(&outcome);
    let traced = open(&data)?;
    match on_trace(&arguments, &traced)? {
        Exit::Done => Ok(exit_status(&outcome)),
        failed => Ok(failed),
    }
}

/// Traces the command. Returns the exit status if that fails.
fn record_first(
    arguments: &Arguments,
    source: &[u8],
    data: PathBuf,
) -> anyhow::Result<Result<TraceOutcome, Exit>> {
    let options = recording_options(source)
        .map_err(|what| usage(format_args!("`{OPTIONS}` of the script: {what}")))?;
    let options = options.into_iter().map(OsString::from);
    let recording = record::Arguments::of_words(options, &arguments.words)
        .map_err(|error| usage(format_args!("`{OPTIONS}` of the script: {error}")))?;
    let spec = recording.tracing.spec(recording.command, data)?;
    Ok(trace(spec))
}

/// Returns the options for recording that a script's first comment has.
fn recording_options(source: &[u8]) -> Result<Vec<String>, String> {
    let text = String::from_utf8_lossy(source);
    let mut comments = text.lines().take_while(|line| line.starts_with('#'));
    let options = comments.find_map(|line| {
        let rest = line.trim_start_matches('#').trim_start();
        rest.strip_prefix(OPTIONS)
    });
    split(options.unwrap_or_default())
}

/// Runs the script on a trace.
fn on_trace(arguments: &Arguments, trace: &Trace) -> anyhow::Result<Exit> {
    let names = arguments.naming.names(trace)?;
    let view = arguments.selected.view_with_tasks(&names)?;
    let mut script = Script::start(&arguments.python, &arguments.script)?;
    let words = arguments.words.iter();
    let about = About {
        record: false,
        version: concat!("dioptra ", env!("CARGO_PKG_VERSION")),
        cmds: words
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
    };
    let Some(answer) = script.begin(&about)? else {
        return Ok(exit_of(script.end()?, &arguments.script));
    };
    let mut hooks = Hooks::new(&view, &names, &answer, arguments.selected.style());
    let mut feed = Feed::new(&mut script);
    let (fed, merged) = ahead(view.merged(), |merged| hooks.feed(merged, &mut feed));
    let losses = merged.losses();
    let fed = fed.and_then(|()| feed.end());
    match fed {
        Err(error) if !has_ended(&error) => return Err(error).context("writing to the script"),
        _ => {}
    }
    let exit = exit_of(script.end()?, &arguments.script);
    let facts = spelled(dioptra_trace_report::replay_facts(&view, &names, &losses));
    facts.write_text(&mut io::stderr().lock())?;
    Ok(exit)
}

/// Returns the exit of a script's process.
fn exit_of(status: ExitStatus, script: &Path) -> Exit {
    match (status.code(), status.signal()) {
        (Some(0), _) => Exit::Done,
        (Some(1), _) => Exit::Failed,
        (Some(code), _) => Exit::Command(u8::try_from(code).unwrap_or(1)),
        (None, signal) => {
            let signal = signal.map_or(String::new(), |signal| format!(" {signal}"));
            say!("{}: killed by signal{signal}", script.display());
            Exit::Failed
        }
    }
}

/// Returns a recorded value as scripts get it: numbers, texts, truth values, `None` for a null pointer where memory was
/// asked for, and the text that `replay` shows of all others.
fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Integer(number, Digits::Character) => match u8::try_from(*number) {
            Ok(byte) => json!(char::from(byte).to_string()),
            Err(_) => json!(value.to_string()),
        },
        Value::Integer(number, _) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) => json!(number),
            _ => json!(value.to_string()),
        },
        Value::Boolean(value) => json!(value),
        // JSON has no infinity.
        Value::Float(number, _) if number.is_finite() => json!(number),
        Value::Text(bytes, _) => json!(String::from_utf8_lossy(bytes)),
        Value::Named(name, _) => json!(name),
        Value::Null => json!(null),
        other => json!(other.to_string()),
    }
}

/// The steps for which a script's functions are called.
struct Hooks<'v, 'n, 't> {
    view: &'v View<'t>,
    names: &'n FunctionNames<'t>,
    entry: bool,
    exit: bool,
    event: bool,
    /// The functions whose calls are passed on, by id; empty for all.
    wanted: Vec<bool>,
    addresses: Vec<u64>,
    first_event: u32,
    /// By stream: the times at which open calls began.
    open: Vec<OpenCalls<u64>>,
}

impl<'v, 'n, 't> Hooks<'v, 'n, 't> {
    fn new(
        view: &'v View<'t>,
        names: &'n FunctionNames<'t>,
        answer: &Answer,
        style: MatchStyle,
    ) -> Self {
        let trace = names.trace();
        let has = |hook: &str| answer.hooks.iter().any(|has| has == hook);
        let mut wanted = Vec::new();
        for pattern in &answer.functions {
            let matching = names.matching(pattern, style);
            if !matching.contains(&true) {
                let nearest = names.nearest(pattern);
                let nearest = match nearest.is_empty() {
                    true => String::new(),
                    false => format!("; the nearest names are {}", nearest.join(", ")),
                };
                say!("UFTRACE_FUNCS: no function matches `{pattern}`{nearest}");
            }
            wanted.resize(matching.len(), false);
            for (wanted, matches) in wanted.iter_mut().zip(matching) {
                *wanted |= matches;
            }
        }
        Hooks {
            view,
            names,
            entry: has("entry"),
            exit: has("exit"),
            event: has("event"),
            wanted,
            addresses: function_addresses(trace),
            first_event: trace.event_id(EventPlace::Schedule).unwrap_or(u32::MAX),
            open: view
                .streams()
                .iter()
                .map(|_| OpenCalls::default())
                .collect(),
        }
    }

    fn is_wanted(&self, function: u32) -> bool {
        self.wanted.is_empty() || self.wanted.get(function as usize) == Some(&true)
    }

    /// Passes all steps on.
    fn feed<W: io::Write>(
        &mut self,
        merged: &mut Ahead<(usize, ShownStep)>,
        feed: &mut Feed<W>,
    ) -> io::Result<()> {
        let range = self.view.range();
        for (place, shown) in merged.by_ref() {
            let in_range = range.contains(shown.time());
            match shown {
                ShownStep::Enter { time, call, .. } => {
                    self.open[place].push(time);
                    if !in_range || call.entered.is_none() {
                        continue;
                    }
                    if call.function >= self.first_event {
                        self.event(place, time, call.function, true, feed)?;
                    } else if self.entry && self.is_wanted(call.function) {
                        let step = self.step(StepKind::Entry, place, &call, time, 0);
                        let trace = self.names.trace();
                        let all: Vec<_> = arguments(trace, &call).collect();
                        if !all.is_empty() {
                            let all: Vec<_> = all.iter().map(|(_, value)| json_of(value)).collect();
                            feed.values(&json!({ "args": all }));
                        }
                        feed.call(step, call.function, || self.names.get(call.function))?;
                    }
                }
                ShownStep::Leave {
                    time, call, ending, ..
                } => {
                    let began = self.open[place].pop().unwrap_or(time);
                    if !in_range || ending == CallEnding::Open {
                        continue;
                    }
                    if call.function >= self.first_event {
                        self.event(place, time, call.function, false, feed)?;
                    } else if self.exit && self.is_wanted(call.function) {
                        let duration = time.saturating_sub(began);
                        let step = self.step(StepKind::Exit, place, &call, time, duration);
                        if let Some(value) = returned_value(self.names.trace(), &call) {
                            feed.values(&json!({ "retval": json_of(&value) }));
                        }
                        feed.call(step, call.function, || self.names.get(call.function))?;
                    }
                }
                ShownStep::Lost { .. } => {}
                ShownStep::Switch { stack, .. } => self.open[place].switch(stack),
            }
        }
        Ok(())
    }

    fn step(
        &self,
        kind: StepKind,
        place: usize,
        call: &dioptra_calls::Call,
        time: u64,
        duration: u64,
    ) -> Step {
        Step {
            kind,
            tid: self.view.streams()[place].tid,
            depth: call.depth,
            time,
            address: self
                .addresses
                .get(call.function as usize)
                .copied()
                .unwrap_or(0),
            duration,
        }
    }

    /// Passes an event on, with uftrace's names and numbers. A period without a CPU is two events.
    fn event<W: io::Write>(
        &self,
        place: usize,
        time: u64,
        function: u32,
        begins: bool,
        feed: &mut Feed<W>,
    ) -> io::Result<()> {
        if !self.event {
            return Ok(());
        }
        let trace = self.names.trace();
        let entry = trace.function(function);
        let (number, name) = match entry.as_event() {
            Some(EventPlace::Schedule | EventPlace::ScheduleTracer) if begins => {
                (200_002, "linux:sched-out")
            }
            Some(EventPlace::SchedulePreempted) if begins => {
                (200_007, "linux:sched-out (pre-empted)")
            }
            Some(
                EventPlace::Schedule | EventPlace::ScheduleTracer | EventPlace::SchedulePreempted,
            ) => (200_001, "linux:sched-in"),
            Some(EventPlace::TaskNew) if begins => (200_004, "linux:task-new"),
            Some(EventPlace::TaskExit) if begins => (200_005, "linux:task-exit"),
            Some(EventPlace::TaskName) if begins => (200_006, "linux:task-name"),
            _ => return Ok(()),
        };
        let text = match trace.task_name(&entry) {
            Some(name) => format!("comm=\"{name}\""),
            None => String::new(),
        };
        let step = Step {
            kind: StepKind::Event,
            tid: self.view.streams()[place].tid,
            depth: 0,
            time,
            address: number,
            duration: 0,
        };
        feed.event(step, name, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::recording_options;

    #[test]
    fn options_for_recording_stand_in_the_first_comment() {
        let options = |text: &str| recording_options(text.as_bytes()).expect("words");
        assert_eq!(
            options("#!/usr/bin/python3\n# uftrace-option: -P . -F 'main'\nx = 1\n"),
            ["-P", ".", "-F", "main"]
        );
        assert!(options("x = 1\n# uftrace-option: -P .\n").is_empty());
        assert!(options("").is_empty());
    }
}
