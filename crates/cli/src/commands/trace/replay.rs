//! `dioptra trace replay`: the calls in the order of time, like a C program.

mod flat;
mod lines;

use super::fields;
use super::render::{Color, Labels, Output, Sources, Style, title};
use super::selected::{Data, Naming, Selected, spelled};
use crate::exit::Exit;
use dioptra_calls::{
    Ahead, CallEnding, CallPaths, FunctionNames, OpenCalls, ShownStep, ThreadCpus, View,
    ViewLosses, ahead,
};
use dioptra_tables::Facts;
use dioptra_tracelayout::EventPlace;
use std::io;

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

/// Arguments about the form of shown calls.
#[derive(clap::Args)]
pub struct Showing {
    /// Columns before each line [default: duration,tid; with -r elapsed or time, too]
    #[arg(short = 'f', long, value_name = "FIELDS")]
    output_fields: Option<String>,
    /// A line for each entry and exit, with their numbers
    #[arg(long)]
    flat: bool,
    /// Each thread in a column of its own
    #[arg(long)]
    column_view: bool,
    /// Number of levels between columns
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
    /// Checks the arguments before any work that takes time.
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

/// The columns that may stand before a line.
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

    /// Returns the default columns. A range of times adds a column for the moment of each line: elapsed time if the
    /// range is in times since the start, else timestamps.
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

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
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
    Ok(Exit::Done)
}

/// Returns the diagnostics of a replay, with their remedies.
pub fn replay_facts(view: &View<'_>, names: &FunctionNames<'_>, losses: &ViewLosses) -> Facts {
    spelled(dioptra_trace_report::replay_facts(view, names, losses))
}

/// The state of a thread during a replay.
struct Thread<'v> {
    /// The functions of the open calls.
    open: OpenCalls<u32>,
    /// Calls that are open at the end, the innermost first, by call stack.
    remaining: Vec<Vec<u32>>,
    /// The time of the thread's last line.
    last: Option<u64>,
    column: Option<usize>,
    cpus: ThreadCpus<'v>,
    /// The call paths, if a backtrace was asked for.
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

/// The maker of a replay's lines, one after the other.
pub struct Replay<'v, 'n, 't> {
    view: &'v View<'t>,
    fields: Vec<Field>,
    labels: Labels<'n, 't>,
    sources: Option<Sources<'n, 't>>,
    /// The first id that stands for an event instead of a function.
    first_event: u32,
    colors: Vec<Option<usize>>,
    color: bool,
    threads: Vec<Thread<'v>>,
    /// The number of levels between columns, if each thread has a column of its own.
    column: Option<usize>,
    columns: usize,
    task_newline: bool,
    comment: bool,
    merge: bool,
    last_place: Option<usize>,
    number: u64,
    /// If `Some`, lines are not indented; each line's indentation in blanks is added here instead.
    pub indents: Option<Vec<u32>>,
    pub out: Output,
}

impl<'v, 'n, 't> Replay<'v, 'n, 't> {
    /// Makes the replay of a view, with these fields.
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

    /// Writes the lines of the next step. `peek` returns the step behind it. Returns whether the lines cover that step,
    /// too.
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
                            time: end,
                            ending,
                            call: returned,
                            ..
                        },
                    )) = peek()
                    && *next == place
                    && *ending != CallEnding::Open
                    && range.contains(*end)
                {
                    self.leaf(place, time, call, (*end, *ending, *returned));
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

    /// Returns the headings of the fields.
    pub fn headings(&self) -> String {
        let headings: Vec<&str> = self.fields.iter().map(|field| field.heading()).collect();
        let source = match self.sources {
            Some(_) => " [SOURCE]",
            None => "",
        };
        format!("#{}   FUNCTION{source}", headings.join(" "))
    }

    /// Writes the calls that are open at the end.
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
