//! `dioptra trace replay`: the calls in the order of time, like a C program.

mod flat;
mod lines;

use super::fields;
use super::render::{Color, Labels, Output, Sources, Style, title};
use super::selected::{Data, Naming, Selected, facts};
use dioptra_calls::{
    Ahead, CallEnding, CallPaths, FunctionNames, OpenCalls, ShownStep, ThreadCpus, View,
    ViewLosses, ahead,
};
use dioptra_tables::{Facts, Severity};
use dioptra_tracelayout::EventPlace;
use std::io;
use std::process::ExitCode;

/// Arguments of `dioptra trace replay`.
#[derive(clap::Args)]
#[command(after_help = "\
Fields: duration, tid, addr (place in the module's file), time, delta (since the thread's line before), elapsed (since the trace's start), task, module, cpu (as far as scheduling was recorded). `+FIELD,…` adds to duration,tid; `all` shows all, `none` the calls alone.

When a thread has no CPU, that is shown as `linux:schedule`, or `linux:schedule (pre-empted)` if it could have gone on; when it gets a name, begins and ends, as `linux:task-name`, `linux:task-new` and `linux:task-exit`.

Examples:
  dioptra trace replay                         everything
  dioptra trace replay -t 1ms                  calls of a millisecond and longer
  dioptra trace replay -F main -F a@sample=2   main, and every second execution of a
  dioptra trace replay -r 5ms~10ms -f +time    what happened from 5 to 10 ms after the start")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    pub selected: Selected,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub show: Showing,
}

/// How calls are shown.
#[derive(clap::Args)]
pub struct Showing {
    /// What stands before each line [default: duration,tid; with -r elapsed or time, too]
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
    /// Text, or a page
    #[arg(long, value_name = "normal|html", default_value = "normal")]
    format: Style,
    #[command(flatten)]
    color: Color,
}

impl Showing {
    /// Whether it is possible, before anything takes time.
    pub fn check(&self) -> anyhow::Result<()> {
        fields::parse(
            self.output_fields.as_deref(),
            &[],
            Field::ALL.map(|(name, field, _)| (name, field)),
        )?;
        self.color.is_wanted(false)?;
        Ok(())
    }
}

/// What may stand before a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Duration,
    Tid,
    Address,
    Time,
    Delta,
    Elapsed,
    Task,
    Module,
    Cpu,
}

impl Field {
    const ALL: [(&'static str, Field, &'static str); 9] = [
        ("duration", Field::Duration, " DURATION "),
        ("tid", Field::Tid, "   TID  "),
        ("addr", Field::Address, "   ADDRESS  "),
        ("time", Field::Time, "     TIMESTAMP    "),
        ("delta", Field::Delta, " TIMEDELTA"),
        ("elapsed", Field::Elapsed, "  ELAPSED "),
        ("task", Field::Task, "      TASK NAME"),
        ("module", Field::Module, "     MODULE NAME"),
        ("cpu", Field::Cpu, " CPU"),
    ];

    /// Those that are shown if no others are asked for; in a range of times, which are times since the start or not, one
    /// wants to know where in it a line is.
    pub fn usual(is_range_elapsed: Option<bool>) -> &'static [Field] {
        match is_range_elapsed {
            None => &[Field::Duration, Field::Tid],
            Some(true) => &[Field::Elapsed, Field::Duration, Field::Tid],
            Some(false) => &[Field::Time, Field::Duration, Field::Tid],
        }
    }

    fn heading(self) -> &'static str {
        let known = Field::ALL.iter().find(|(_, field, _)| *field == self);
        known.map_or("", |(_, _, heading)| heading)
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let fields = fields::parse(
        arguments.show.output_fields.as_deref(),
        Field::usual(arguments.selected.is_range_elapsed()),
        Field::ALL.map(|(name, field, _)| (name, field)),
    )?;
    let as_page = arguments.show.format == Style::Html;
    let color = arguments.show.color.is_wanted(as_page)?;
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view_with_tasks(&names)?;
    let out = Output::page(&title(&trace), as_page)?;
    let mut replay = Replay::new(&view, &names, fields, out);
    replay.labels = Labels::new(&names, arguments.show.libname);
    replay.sources = arguments.show.srcline.then(|| Sources::new(&names));
    replay.color = color;
    if color {
        replay.colors = view.colors();
    }
    let offset = arguments.show.column_offset;
    replay.column = arguments.show.column_view.then_some(offset);
    replay.task_newline = arguments.show.task_newline;
    replay.comment = !arguments.show.no_comment;
    replay.merge = !arguments.show.no_merge;
    let (shown, merged) = ahead(view.merged(), |merged| match arguments.show.flat {
        true => replay.flat(merged),
        false => replay.nested(merged),
    });
    shown?;
    let losses = merged.losses();
    if !arguments.show.flat {
        replay.remaining();
    }
    replay.out.finish()?;
    replay_facts(&view, &names, &losses).write_text(&mut io::stderr().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// What the reader of a replay has to know.
pub fn replay_facts(view: &View<'_>, names: &FunctionNames<'_>, losses: &ViewLosses) -> Facts {
    let mut facts = facts(view.trace(), names, losses);
    sampled_fact(view, names, &mut facts);
    facts
}

/// Says that sampling left calls out while they were recorded.
fn sampled_fact(view: &View<'_>, names: &FunctionNames<'_>, facts: &mut Facts) {
    const MOST: usize = 3;
    let counted = view.counted();
    let sampled = counted.iter().filter(|(_, (seen, shown))| seen > shown);
    let each: Vec<String> = sampled
        .map(|(id, (seen, shown))| format!("{shown} of {seen} calls of {}", names.get(*id)))
        .collect();
    if each.is_empty() {
        return;
    }
    let more = if each.len() > MOST { ", …" } else { "" };
    let first = each[..each.len().min(MOST)].join(", ");
    let text = format!("sampled while it was recorded: {first}{more}");
    facts.add(Severity::Info, "sampled", text, each.len());
}

/// What is kept of a thread.
struct Thread<'v> {
    /// Open calls: function and whether its beginning was shown.
    open: OpenCalls<u32>,
    /// Calls that are open at the end, the innermost first, by call stack.
    remaining: Vec<Vec<u32>>,
    /// The time of its last line.
    last: Option<u64>,
    column: Option<usize>,
    cpus: ThreadCpus<'v>,
    /// If a backtrace was asked for.
    paths: Option<CallPaths<'v>>,
}

impl<'v> Thread<'v> {
    fn new(view: &'v View<'_>, place: usize) -> Thread<'v> {
        Thread {
            open: OpenCalls::default(),
            remaining: Vec::new(),
            last: None,
            column: None,
            cpus: view.cpus(place),
            paths: None,
        }
    }
}

/// The lines of a replay, made one after the other.
pub struct Replay<'v, 'n, 't> {
    view: &'v View<'t>,
    fields: Vec<Field>,
    labels: Labels<'n, 't>,
    sources: Option<Sources<'n, 't>>,
    /// The id from which on ids are events'.
    first_event: u32,
    colors: Vec<Option<usize>>,
    color: bool,
    threads: Vec<Thread<'v>>,
    /// With columns: how many levels lie between them.
    column: Option<usize>,
    columns: usize,
    task_newline: bool,
    comment: bool,
    merge: bool,
    last_place: Option<usize>,
    number: u64,
    /// If it is there, lines are not indented: by how much they would be, each line, is added here.
    pub indents: Option<Vec<u32>>,
    pub out: Output,
}

impl<'v, 'n, 't> Replay<'v, 'n, 't> {
    /// Of what a view shows, with these fields.
    pub fn new(
        view: &'v View<'t>,
        names: &'n FunctionNames<'t>,
        fields: Vec<Field>,
        out: Output,
    ) -> Replay<'v, 'n, 't> {
        let first_event = view.trace().event_id(EventPlace::Schedule);
        Replay {
            view,
            fields,
            labels: Labels::new(names, false),
            sources: None,
            first_event: first_event.unwrap_or(u32::MAX),
            colors: Vec::new(),
            color: false,
            threads: (0..view.streams().len())
                .map(|place| Thread::new(view, place))
                .collect(),
            column: None,
            columns: 0,
            task_newline: false,
            comment: true,
            merge: true,
            last_place: None,
            number: 0,
            indents: None,
            out,
        }
    }

    fn nested(&mut self, merged: &mut Ahead<(usize, ShownStep)>) -> io::Result<()> {
        self.heading();
        while let Some((place, shown)) = merged.next() {
            if self.step(place, shown, || merged.peek()) {
                merged.next();
            }
            self.out.flush_some()?;
        }
        Ok(())
    }

    /// The lines of what is shown next; `peek` tells what comes behind it. Returns whether that is in them, too.
    #[inline]
    pub fn step<'s>(
        &mut self,
        place: usize,
        shown: ShownStep,
        peek: impl FnOnce() -> Option<&'s (usize, ShownStep)>,
    ) -> bool {
        let range = self.view.range();
        let in_range = range.contains(shown.time());
        match shown {
            ShownStep::Enter {
                time,
                call,
                backtrace,
                ..
            } => {
                if !in_range || call.entered.is_none() {
                    self.threads[place].open.push(call.function);
                    return false;
                }
                if backtrace {
                    self.backtrace(place, time, &call);
                }
                if self.merge
                    && let Some((
                        next,
                        ShownStep::Leave {
                            time: end, ending, ..
                        },
                    )) = peek()
                    && *next == place
                    && *ending != CallEnding::Open
                    && range.contains(*end)
                {
                    self.leaf(place, time, call, *end, *ending);
                    return true;
                } else {
                    self.begin(place, time, call);
                    self.threads[place].open.push(call.function);
                }
            }
            ShownStep::Leave {
                time, call, ending, ..
            } => {
                self.threads[place].open.pop();
                if ending == CallEnding::Open {
                    let remaining = &mut self.threads[place].remaining;
                    match remaining.last_mut() {
                        Some(stack) => stack.push(call.function),
                        None => remaining.push(vec![call.function]),
                    }
                } else if in_range {
                    self.end(place, time, call, ending);
                }
            }
            ShownStep::Lost { time, records } => {
                if in_range {
                    self.lost(place, time, records);
                }
            }
            ShownStep::Switch { stack, .. } => {
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
        false
    }

    fn heading(&mut self) {
        if !self.fields.is_empty() {
            let line = self.headings();
            self.out.line(&line);
        }
    }

    /// The fields' headings.
    pub fn headings(&self) -> String {
        let headings: Vec<&str> = self.fields.iter().map(|field| field.heading()).collect();
        let source = match self.sources {
            Some(_) => " [SOURCE]",
            None => "",
        };
        format!("#{}   FUNCTION{source}", headings.join(" "))
    }

    /// The calls that are open at the end.
    pub fn remaining(&mut self) {
        let title = match self.view.range().stop {
            None => "dioptra stopped tracing with remaining functions",
            Some(_) => "functions that go on at the end of the time range",
        };
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
