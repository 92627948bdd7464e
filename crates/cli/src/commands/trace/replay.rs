//! `dioptra trace replay`: the calls in the order of time, like a C program.

use super::fields;
use super::render::{
    COLORS, Color, DURATION, Labels, Output, RESET, duration_color, push_duration, push_number,
    push_right, push_timestamp, sources,
};
use super::selected::{Data, Naming, Selected, facts};
use dioptra_calls::{Call, Ending, Frames, Shown, View, ViewLosses};
use dioptra_tracelayout::record::UnwindCause;
use std::io;
use std::process::ExitCode;

/// Arguments of `dioptra trace replay`.
#[derive(clap::Args)]
#[command(after_help = "\
Fields: duration, tid, addr (place in the module's file), time, delta (since the thread's line before), elapsed (since the trace's start), task, module. `+FIELD,…` adds to duration,tid; `none` shows the calls alone.

Examples:
  dioptra trace replay                         everything
  dioptra trace replay -t 1ms                  calls of a millisecond and longer
  dioptra trace replay -F main -F a@sample=2   main, and every second execution of a
  dioptra trace replay -r 5ms~10ms -f +time    what happened from 5 to 10 ms after the start")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    naming: Naming,
    /// What stands before each line [default: duration,tid]
    #[arg(short = 'f', long, value_name = "FIELDS")]
    output_fields: Option<String>,
    /// A line for each entry and exit, with their numbers
    #[arg(long)]
    flat: bool,
    /// Each thread in a column of its own
    #[arg(long)]
    column_view: bool,
    /// How many levels lie between columns
    #[arg(long, value_name = "N", default_value_t = 8)]
    column_offset: usize,
    /// An empty line where the thread changes
    #[arg(long)]
    task_newline: bool,
    /// Leave out names behind closing braces
    #[arg(long)]
    no_comment: bool,
    /// Two lines also for calls without calls below them
    #[arg(long)]
    no_merge: bool,
    /// Name the library of library calls
    #[arg(long)]
    libname: bool,
    /// Show where functions are written
    #[arg(long)]
    srcline: bool,
    #[command(flatten)]
    color: Color,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Duration,
    Tid,
    Address,
    Time,
    Delta,
    Elapsed,
    Task,
    Module,
}

impl Field {
    const ALL: [(&'static str, Field, &'static str); 8] = [
        ("duration", Field::Duration, " DURATION "),
        ("tid", Field::Tid, "   TID  "),
        ("addr", Field::Address, "   ADDRESS  "),
        ("time", Field::Time, "     TIMESTAMP    "),
        ("delta", Field::Delta, " TIMEDELTA"),
        ("elapsed", Field::Elapsed, "  ELAPSED "),
        ("task", Field::Task, "      TASK NAME"),
        ("module", Field::Module, "     MODULE NAME"),
    ];

    fn heading(self) -> &'static str {
        let known = Field::ALL.iter().find(|(_, field, _)| *field == self);
        known.map_or("", |(_, _, heading)| heading)
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let fields = fields::parse(
        arguments.output_fields.as_deref(),
        &[Field::Duration, Field::Tid],
        &Field::ALL,
    )?;
    let color = arguments.color.is_wanted()?;
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view(&names)?;
    let mut replay = Replay {
        view: &view,
        fields,
        labels: Labels::new(&names, arguments.libname),
        sources: if arguments.srcline {
            sources(&names)
        } else {
            Vec::new()
        },
        colors: if color { view.colors() } else { Vec::new() },
        color,
        threads: view.streams().iter().map(|_| Thread::default()).collect(),
        column: arguments.column_view.then_some(arguments.column_offset),
        columns: 0,
        task_newline: arguments.task_newline,
        comment: !arguments.no_comment,
        merge: !arguments.no_merge,
        last_place: None,
        number: 0,
        out: Output::new(),
    };
    let losses = if arguments.flat {
        replay.flat()?
    } else {
        replay.nested()?
    };
    if !arguments.flat {
        replay.remaining();
    }
    replay.out.flush()?;
    facts(&trace, &names, &losses).write_text(&mut io::stderr().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// What is kept of a thread.
#[derive(Default)]
struct Thread {
    /// Open calls: function and whether its beginning was shown.
    open: Frames<u32>,
    /// Calls that are open at the end, the innermost first, by call stack.
    remaining: Vec<Vec<u32>>,
    /// The time of its last line.
    last: Option<u64>,
    column: Option<usize>,
}

struct Replay<'v, 'n, 't> {
    view: &'v View<'t>,
    fields: Vec<Field>,
    labels: Labels<'n, 't>,
    sources: Vec<Option<String>>,
    colors: Vec<Option<usize>>,
    color: bool,
    threads: Vec<Thread>,
    /// With columns: how many levels lie between them.
    column: Option<usize>,
    columns: usize,
    task_newline: bool,
    comment: bool,
    merge: bool,
    last_place: Option<usize>,
    number: u64,
    out: Output,
}

/// What is said of a call that did not return.
fn ending_text(ending: Ending) -> Option<&'static str> {
    match ending {
        Ending::Returned => None,
        Ending::Unwound(UnwindCause::Jump) => Some("jumped out of"),
        Ending::Unwound(UnwindCause::Exception) => Some("left by an exception"),
        Ending::Unwound(UnwindCause::ThreadEnd) => Some("its thread ended"),
        Ending::Unwound(UnwindCause::Unknown) => Some("did not return"),
        _ => Some("its end is missing"),
    }
}

impl Replay<'_, '_, '_> {
    fn nested(&mut self) -> io::Result<ViewLosses> {
        self.heading();
        let range = self.view.range();
        let mut merged = self.view.merged();
        while let Some((place, shown)) = merged.next() {
            let in_range = range.contains(shown.time());
            match shown {
                Shown::Enter {
                    time,
                    call,
                    backtrace,
                    ..
                } => {
                    if !in_range || call.entered.is_none() {
                        self.threads[place].open.push(call.function);
                        continue;
                    }
                    if backtrace {
                        self.backtrace(place, time);
                    }
                    if self.merge
                        && let Some((
                            next,
                            Shown::Leave {
                                time: end, ending, ..
                            },
                        )) = merged.peek()
                        && *next == place
                        && *ending != Ending::Open
                        && range.contains(*end)
                    {
                        self.leaf(place, time, call, *end, *ending);
                        merged.next();
                    } else {
                        self.begin(place, time, call);
                        self.threads[place].open.push(call.function);
                    }
                }
                Shown::Leave {
                    time, call, ending, ..
                } => {
                    self.threads[place].open.pop();
                    if ending == Ending::Open {
                        let remaining = &mut self.threads[place].remaining;
                        match remaining.last_mut() {
                            Some(stack) => stack.push(call.function),
                            None => remaining.push(vec![call.function]),
                        }
                    } else if in_range {
                        self.end(place, time, call, ending);
                    }
                }
                Shown::Lost { time, records } => {
                    if in_range {
                        self.lost(place, time, records);
                    }
                }
                Shown::Switch { stack, .. } => {
                    let thread = &mut self.threads[place];
                    thread.open.switch(stack);
                    if thread
                        .remaining
                        .last()
                        .is_some_and(|stack| !stack.is_empty())
                    {
                        thread.remaining.push(Vec::new());
                    }
                }
            }
            self.out.flush_some()?;
        }
        Ok(merged.losses())
    }

    fn heading(&mut self) {
        if self.fields.is_empty() {
            return;
        }
        let headings: Vec<&str> = self.fields.iter().map(|field| field.heading()).collect();
        let source = if self.sources.is_empty() {
            ""
        } else {
            " [SOURCE]"
        };
        let line = format!("#{}   FUNCTION{source}", headings.join(" "));
        self.out.line(&line);
    }

    /// The fields of a line, and its indentation.
    #[inline]
    fn prefix(
        &mut self,
        place: usize,
        time: u64,
        function: Option<u32>,
        duration: Option<u64>,
        depth: u32,
    ) {
        if self.last_place != Some(place) {
            self.change(place);
        }
        let thread = &mut self.threads[place];
        let stream = self.view.streams()[place];
        let out = &mut self.out.text;
        for field in &self.fields {
            out.push(b' ');
            match field {
                Field::Duration => match duration {
                    Some(duration) if self.color => {
                        let color = duration_color(duration);
                        out.extend_from_slice(color.unwrap_or("").as_bytes());
                        push_duration(out, duration);
                        out.extend_from_slice(color.map_or("", |_| RESET).as_bytes());
                    }
                    Some(duration) => push_duration(out, duration),
                    None => out.extend_from_slice(&[b' '; DURATION]),
                },
                Field::Tid => {
                    out.push(b'[');
                    push_number(out, u64::from(stream.tid), 6);
                    out.push(b']');
                }
                Field::Address => {
                    let entry = function.map(|function| self.view.trace().function(function));
                    let place = entry.map_or(String::new(), |entry| format!("{:x}", entry.place));
                    push_right(out, &place, 12);
                }
                Field::Time => push_timestamp(out, time, 18),
                Field::Delta => {
                    push_passed(out, thread.last.map_or(0, |last| time.saturating_sub(last)));
                }
                Field::Elapsed => push_passed(out, time.saturating_sub(self.view.first())),
                Field::Task => {
                    push_right(out, &dioptra_report::escape(self.view.task_name(place)), 15)
                }
                Field::Module => {
                    let module = function.map_or("", |function| self.labels.module(function));
                    push_right(out, &dioptra_report::escape(module), 16);
                }
            }
        }
        thread.last = Some(time);
        if !self.fields.is_empty() {
            out.extend_from_slice(b" | ");
        }
        let mut depth = depth as usize;
        if let (Some(offset), Some(column)) = (self.column, thread.column) {
            depth = depth.saturating_add(column.saturating_mul(offset));
        }
        // Deeper calls stay at this column, so that a recursion of millions does not fill the disk.
        let blanks = depth.min(MOST_DEPTH) * 2;
        out.resize(out.len() + blanks, b' ');
    }

    #[cold]
    fn change(&mut self, place: usize) {
        if self.task_newline && self.last_place.is_some() {
            let width: usize = self
                .fields
                .iter()
                .map(|field| field.heading().len() + 1)
                .sum();
            self.out.text.resize(self.out.text.len() + width, b' ');
            self.out.line(if width > 0 { " |" } else { "" });
        }
        self.last_place = Some(place);
        if self.column.is_some() && self.threads[place].column.is_none() {
            self.threads[place].column = Some(self.columns);
            self.columns += 1;
        }
    }

    #[inline]
    fn name(&mut self, function: u32) {
        let color = self.colors.get(function as usize).copied().flatten();
        let color = color.and_then(|color| COLORS.get(color));
        if let Some(color) = color {
            self.out.text.extend_from_slice(color.as_bytes());
        }
        let name = self.labels.get(function);
        self.out.text.extend_from_slice(name.as_bytes());
        if color.is_some() {
            self.out.text.extend_from_slice(RESET.as_bytes());
        }
    }

    fn source(&mut self, function: u32) {
        if let Some(Some(source)) = self.sources.get(function as usize) {
            self.out.text.extend_from_slice(b" /* ");
            self.out.text.extend_from_slice(source.as_bytes());
            self.out.text.extend_from_slice(b" */");
        }
    }

    fn begin(&mut self, place: usize, time: u64, call: Call) {
        self.prefix(place, time, Some(call.function), None, call.depth);
        self.name(call.function);
        self.out.text.extend_from_slice(b"() {");
        self.source(call.function);
        self.out.text.push(b'\n');
    }

    #[inline]
    fn leaf(&mut self, place: usize, time: u64, call: Call, end: u64, ending: Ending) {
        let duration = Some(end.saturating_sub(time));
        self.prefix(place, time, Some(call.function), duration, call.depth);
        self.name(call.function);
        self.out.text.extend_from_slice(b"();");
        self.source(call.function);
        if let Some(text) = ending_text(ending) {
            self.out
                .text
                .extend_from_slice(format!(" /* {text} */").as_bytes());
        }
        self.out.text.push(b'\n');
    }

    #[inline]
    fn end(&mut self, place: usize, time: u64, call: Call, ending: Ending) {
        let duration = call.entered.map(|start| time.saturating_sub(start));
        self.prefix(place, time, Some(call.function), duration, call.depth);
        self.out.text.push(b'}');
        let ending = ending_text(ending);
        if self.comment || ending.is_some() {
            self.out.text.extend_from_slice(b" /* ");
            if self.comment {
                self.name(call.function);
            }
            if let Some(text) = ending {
                let separator: &[u8] = if self.comment { b": " } else { b"" };
                self.out.text.extend_from_slice(separator);
                self.out.text.extend_from_slice(text.as_bytes());
            }
            self.out.text.extend_from_slice(b" */");
        }
        self.out.text.push(b'\n');
    }

    fn lost(&mut self, place: usize, time: u64, records: u64) {
        let depth = self.threads[place].open.current().len() as u32;
        self.prefix(place, time, None, None, depth);
        let text = match records {
            0 => "/* LOST some records!! */".to_owned(),
            records => format!("/* LOST {records} records!! */"),
        };
        self.out.line(&text);
    }

    /// The calls that lead to what comes next.
    fn backtrace(&mut self, place: usize, time: u64) {
        let path = self.threads[place].open.current().to_vec();
        for (level, function) in path.into_iter().enumerate() {
            let before = self.threads[place].last;
            let start = self.out.text.len();
            self.prefix(place, time, None, None, 0);
            self.threads[place].last = before;
            if self.fields.first() == Some(&Field::Duration) {
                let width = " ".len() + Field::Duration.heading().len();
                if let Some(blanks) = self.out.text[start..].first_chunk_mut::<11>() {
                    debug_assert_eq!(blanks.len(), width);
                    blanks.copy_from_slice(b"  backtrace");
                }
            }
            let name = self.labels.get(function);
            let line = format!("/* [{level:2}] {name} */");
            self.out.line(&line);
        }
    }

    /// A line for each entry and exit.
    fn flat(&mut self) -> io::Result<ViewLosses> {
        let range = self.view.range();
        let mut merged = self.view.merged();
        for (place, shown) in merged.by_ref() {
            if !range.contains(shown.time()) {
                continue;
            }
            let tid = self.view.streams()[place].tid;
            let number = self.number;
            let line = match shown {
                Shown::Enter { call, .. } if call.entered.is_none() => continue,
                Shown::Enter { time, call, .. } => {
                    let name = self.labels.get(call.function);
                    format!(
                        "[{number}] ==> {tid}/{}: ip ({name}), time ({time})",
                        call.depth
                    )
                }
                Shown::Leave {
                    ending: Ending::Open,
                    ..
                } => continue,
                Shown::Leave {
                    time, call, ending, ..
                } => {
                    let name = self.labels.get(call.function);
                    let duration = call.entered.map_or_else(
                        || "?".to_owned(),
                        |start| time.saturating_sub(start).to_string(),
                    );
                    let ending = ending_text(ending).map_or(String::new(), |t| format!(", {t}"));
                    format!(
                        "[{number}] <== {tid}/{}: ip ({name}), time ({time}:{duration}){ending}",
                        call.depth
                    )
                }
                Shown::Lost { time, records } => {
                    format!("[{number}] XXX {tid}: lost {records} records, time ({time})")
                }
                Shown::Switch { time, stack } => {
                    format!("[{number}] --- {tid}: stack {stack}, time ({time})")
                }
            };
            self.out.line(&line);
            self.number += 1;
            self.out.flush_some()?;
        }
        Ok(merged.losses())
    }

    /// The calls that are open at the end.
    fn remaining(&mut self) {
        let title = "dioptra stopped tracing with remaining functions";
        let mut told = false;
        for (place, stream) in self.view.streams().iter().enumerate() {
            let stacks = std::mem::take(&mut self.threads[place].remaining);
            for (number, stack) in stacks.iter().filter(|stack| !stack.is_empty()).enumerate() {
                self.out.line("");
                if !told {
                    self.out.line(title);
                    self.out.line(&"=".repeat(title.len()));
                    told = true;
                }
                let which = match number {
                    0 => String::new(),
                    _ => " (another call stack)".to_owned(),
                };
                self.out.line(&format!("task: {}{which}", stream.tid));
                for (inner, function) in stack.iter().enumerate() {
                    let level = stack.len() - 1 - inner;
                    let name = self.labels.get(*function);
                    let line = format!("[{level}] {name}");
                    self.out.line(&line);
                }
            }
        }
    }
}

/// A time that passed; blanks if none did.
fn push_passed(out: &mut Vec<u8>, nanoseconds: u64) {
    match nanoseconds {
        0 => out.extend_from_slice(&[b' '; DURATION]),
        _ => push_duration(out, nanoseconds),
    }
}

/// How many levels are indented.
const MOST_DEPTH: usize = 4096;
