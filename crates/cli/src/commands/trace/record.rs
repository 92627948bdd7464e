//! `dioptra trace record`.

use super::option_file::split;
use super::patches::PatchTexts;
use super::rules::RuleTexts;
use super::selected::switch;
use super::{summary, usage};
use crate::exit::Exit;
use crate::output::say;
use clap::{Args, FromArgMatches};
use dioptra_filters::{MatchStyle, RuleOption, parse_share, parse_size, parse_time};
use dioptra_trace_recorder::{
    BeforeStart, Choice, LibraryCalls, OnFull, RuleSelector, TraceClock, TraceOutcome, TraceSpec,
    default_memory, record,
};
use dioptra_tracedata::{PendingRule, PendingRules};
use dioptra_tracelayout::directory;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `dioptra trace record`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra trace record ./program --its-option    functions that a compiler has prepared (-pg, -mfentry,
                                                 -fpatchable-function-entry, ...), else all functions
  dioptra trace record -P 'parse_.*' ./program   some functions of a program as it is
  dioptra trace record -A 'open@arg1/s,arg2/x32' -R open@retval/i32 ./program
                                                 with arguments and return values of a function
  dioptra trace record -p 1234 --duration 10s -P 'handle_.*'
                                                 a process that already runs, for ten seconds
  dioptra trace record -F main -F a@sample=100 ./program
                                                 every hundredth execution of a, and what it calls

Exit status: the command's (128 + signal if one killed it), 125 if tracing failed, 126 if the command
cannot be executed, 127 if there is none.")]
pub struct Arguments {
    /// The trace's directory; a trace that is there becomes DIR.old
    #[arg(short, long, value_name = "DIR", default_value = directory::DEFAULT)]
    data: PathBuf,
    #[command(flatten)]
    pub tracing: Tracing,
    /// Say nothing but warnings at the end
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    pub command: TracedCommand,
}

/// uftrace's default limit of open calls. A higher `--max-stack` limits nothing here.
const UFTRACES_MAX_STACK: u32 = 1024;

/// The command to run.
#[derive(clap::Args)]
pub struct TracedCommand {
    // Users of `dioptra record` may try `-o`.
    #[arg(short, long, hide = true, value_name = "FILE", value_parser = no_output)]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: super::option_file::OptionFile,
    /// Attach to processes that already run, in place of a command, until Ctrl-C or their end
    #[arg(short, long, value_name = "PID,...", value_delimiter = ',', conflicts_with = "command",
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// With -p: detach after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "pid")]
    duration: Option<Duration>,
    /// The command and its arguments
    #[arg(required_unless_present = "pid", value_name = "COMMAND", trailing_var_arg = true,
          value_parser = clap::value_parser!(OsString))]
    command: Vec<OsString>,
}

/// The calls to trace of a command, and the way to trace them.
#[derive(clap::Args)]
pub struct Tracing {
    #[command(flatten)]
    patches: PatchTexts,
    #[command(flatten)]
    rules: RuleTexts,
    /// Record arguments of these functions: NAME or a pattern, with @VALUE,… such as @arg1,arg2/s. A value is argN, or
    /// fpargN for a floating-point number, and a form: /d /i /u /x /o (with 8, 16, 32 or 64 bits), /c, /p, /f32 /f64, /s
    /// for text and /S for std::string (with the largest number of bytes, 64 by default)
    #[arg(
        short = 'A',
        long,
        value_name = "FUNC@VALUE",
        allow_hyphen_values = true
    )]
    argument: Vec<String>,
    /// Record return values of these functions, in a form as with -A, such as @retval/i32
    #[arg(
        short = 'R',
        long,
        value_name = "FUNC@retval",
        allow_hyphen_values = true
    )]
    retval: Vec<String>,
    /// Record the arguments and return values of all functions whose types the debug information declares; -A and -R
    /// choose others for some functions
    #[arg(short = 'a', long)]
    auto_args: bool,
    /// Kind of patterns: regular expressions, a shell's patterns, or plain names
    #[arg(long = "match", value_name = "regex|glob|simple", default_value = "regex", value_parser = style)]
    style: MatchStyle,
    /// Leave out calls of libraries
    #[arg(long, conflicts_with = "nest_libcall")]
    no_libcall: bool,
    /// Calls that libraries make of each other, too
    #[arg(short = 'l', long)]
    nest_libcall: bool,
    /// The share of the program's time that functions with sample=auto may cost, together
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share)]
    overhead: f64,
    /// Chooses the executions that are sampled at random; info tells which seed a recording had [default: drawn anew]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// When memory is full: wait until it is written, or go on, and count what is lost
    #[arg(long, value_name = "block|drop", default_value = "block", value_parser = on_full)]
    on_full: OnFull,
    /// Source of times: the processor's counter, or the system's clock, with which calls take far longer; auto: the
    /// counter where it can be trusted
    #[arg(long, value_name = "auto|tsc|mono", default_value = "auto", value_parser = clock)]
    clock: Clock,
    /// Keep only what happened in the last stretch of time, as far as memory reaches
    #[arg(long, value_name = "TIME", value_parser = duration)]
    last: Option<Duration>,
    /// Memory for records that are not written yet, beyond a chunk of 64 KiB for each thread [default: an eighth of the
    /// available memory, from 32m to 256m]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<usize>,
    /// Do not record when threads have no CPU (linux:schedule)
    #[arg(long)]
    no_sched: bool,
    /// Record no events but those of -E
    #[arg(long)]
    no_event: bool,
    /// Record an event nevertheless: linux:schedule, linux:sched-in or linux:sched-out (the same); linux:task-new,
    /// linux:task-exit or linux:task-name (the same)
    #[arg(short = 'E', long, alias = "Event", value_name = "EVENT", value_parser = event)]
    event: Vec<Event>,
    /// Begin with tracing on or off; a trigger may switch it
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = switch)]
    trace: bool,
    /// As --trace=off
    #[arg(long, hide = true)]
    disable: bool,
    // uftrace's limit of open calls. In contrast, `-D` counts levels from filters on.
    #[arg(long, hide = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_stack: Option<u32>,
    // Changes nothing: dioptra always does what `--force` asks for, and uftrace's users may pass it.
    #[arg(long, hide = true)]
    force: bool,
    #[command(flatten)]
    absent: Absent,
}

/// uftrace's options that dioptra lacks. Each has an error of its own, in place of clap's guess at another option.
#[derive(clap::Args)]
struct Absent {
    #[arg(short = 'k', long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = no_kernel)]
    kernel: Option<String>,
    #[arg(short = 'W', long, hide = true, value_name = "POINT", value_parser = no_watch)]
    watch: Vec<String>,
    #[arg(short = 'S', long, hide = true, value_name = "FILE", value_parser = no_script)]
    script: Vec<String>,
    #[arg(short = 'K', long, hide = true, value_name = "N", value_parser = no_kernel)]
    kernel_depth: Option<String>,
    #[arg(long, hide = true, value_name = "HOST", value_parser = no_network)]
    host: Option<String>,
    #[arg(long, hide = true, value_name = "PORT", value_parser = no_network)]
    port: Option<String>,
    #[arg(long, hide = true, value_name = "SIGNAL@ACTION", value_parser = no_signal)]
    signal: Vec<String>,
    #[arg(short = 'g', long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = no_agent)]
    agent: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = no_nop)]
    nop: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "list", value_parser = no_list)]
    list_event: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = no_record)]
    record: Option<String>,
}

fn no_kernel(_: &str) -> Result<String, String> {
    Err(
        "functions of the kernel are not traced; `dioptra record -g` shows what it spends time on"
            .to_owned(),
    )
}

fn no_watch(_: &str) -> Result<String, String> {
    Err("variables and counters are not watched yet".to_owned())
}

fn no_script(_: &str) -> Result<String, String> {
    Err(
        "scripts do not run in the traced program; `dioptra trace script -S FILE` runs them afterwards"
            .to_owned(),
    )
}

fn no_network(_: &str) -> Result<String, String> {
    Err("a trace is written to a local directory, which can be copied".to_owned())
}

fn no_signal(_: &str) -> Result<String, String> {
    Err("signals do not switch tracing; triggers at functions do, such as -T f@trace_on".to_owned())
}

fn no_agent(_: &str) -> Result<String, String> {
    Err("a traced program listens to nobody; `dioptra trace record -p PID` attaches to one that runs".to_owned())
}

fn no_nop(_: &str) -> Result<String, String> {
    Err("to compare, run the program without dioptra".to_owned())
}

fn no_list(_: &str) -> Result<String, String> {
    Err(events_are())
}

fn no_record(_: &str) -> Result<String, String> {
    Err("live keeps nothing; use `dioptra trace record`, then `dioptra trace replay`".to_owned())
}

fn no_output(_: &str) -> Result<PathBuf, String> {
    Err("a trace is a directory; name it with `dioptra trace record -d DIR`".to_owned())
}

fn style(word: &str) -> Result<MatchStyle, String> {
    MatchStyle::parse(word).ok_or_else(|| "use regex, glob or simple".to_owned())
}

/// A kind of events that can be recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Schedule,
    Tasks,
}

const EVENTS: [(&str, Event); 6] = [
    ("linux:schedule", Event::Schedule),
    ("linux:sched-in", Event::Schedule),
    ("linux:sched-out", Event::Schedule),
    ("linux:task-new", Event::Tasks),
    ("linux:task-exit", Event::Tasks),
    ("linux:task-name", Event::Tasks),
];

fn event(word: &str) -> Result<Event, String> {
    let known = EVENTS.iter().find(|(name, _)| *name == word);
    known.map(|(_, event)| *event).ok_or_else(events_are)
}

fn events_are() -> String {
    format!("the events are {}", EVENTS.map(|(name, _)| name).join(", "))
}

/// The source of times; `None` means automatic.
#[derive(Clone, Copy, Debug)]
struct Clock(Option<TraceClock>);

fn clock(word: &str) -> Result<Clock, String> {
    match word {
        "auto" => Ok(Clock(None)),
        "tsc" => Ok(Clock(Some(TraceClock::Tsc))),
        "mono" => Ok(Clock(Some(TraceClock::Monotonic))),
        _ => Err("use auto, tsc or mono".to_owned()),
    }
}

fn on_full(word: &str) -> Result<OnFull, String> {
    match word {
        "block" => Ok(OnFull::Block),
        "drop" => Ok(OnFull::Drop),
        _ => Err("use block or drop".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let above = |share: &f64| *share > 0.0;
    let share = parse_share(text).filter(above);
    share.ok_or_else(|| "give a share above 0, such as 1%".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    match parse_time(text) {
        Ok(0) => Err("give a time above 0, such as 10s".to_owned()),
        Ok(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        Err(error) => Err(error.to_string()),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let size = parse_size(text).map_err(|error| error.to_string())?;
    usize::try_from(size).map_err(|_| "is more than there can be".to_owned())
}

/// Returns a random seed that is short enough to be typed again.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}

/// Lets the allocator ask for memory in larger pieces, because a recording is short-lived, or it waits.
fn ask_for_memory_seldom() {
    #[cfg(target_env = "gnu")]
    // SAFETY: passes numbers only, before other threads begin.
    unsafe {
        // Threads that have an arena of their own ask the kernel for every few pages.
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 512 << 10);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 512 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 8 << 20);
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let start = Instant::now();
    ask_for_memory_seldom();
    let spec = arguments
        .tracing
        .spec(arguments.command, arguments.data.clone())?;
    let outcome = match trace(spec) {
        Ok(outcome) => outcome,
        Err(status) => return Ok(status),
    };
    if !arguments.quiet {
        // The command's last line may lack its newline.
        eprintln!();
    }
    summary::warnings(&outcome);
    if !arguments.quiet {
        summary::write(&outcome, &arguments.data, start.elapsed());
    }
    Ok(exit_status(&outcome))
}

/// A trace that was recorded beside samples.
pub struct Recorded {
    outcome: Result<TraceOutcome, Exit>,
    folder: PathBuf,
    quiet: bool,
    start: Instant,
}

impl Recorded {
    /// Says what was recorded, and returns the command's exit.
    pub fn finish(self) -> Exit {
        match self.outcome {
            Ok(outcome) => {
                summary::warnings(&outcome);
                if !self.quiet {
                    summary::write(&outcome, &self.folder, self.start.elapsed());
                }
                exit_status(&outcome)
            }
            Err(exit) => exit,
        }
    }
}

/// Records the calls of a command with options in one text. `before_start` is called before the command executes.
pub fn record_calls(
    options: &str,
    command: &[OsString],
    quiet: bool,
    before_start: BeforeStart,
) -> anyhow::Result<Recorded> {
    let start = Instant::now();
    ask_for_memory_seldom();
    let words = split(options).map_err(|what| usage(format_args!("--trace: {what}")))?;
    let arguments = Arguments::of_words(words.into_iter().map(OsString::from), command)
        .map_err(|error| usage(format_args!("--trace: {error}")))?;
    let folder = arguments.data.clone();
    let mut spec = arguments.tracing.spec(arguments.command, folder.clone())?;
    spec.before_start = Some(before_start);
    Ok(Recorded {
        outcome: trace(spec),
        folder,
        quiet: quiet || arguments.quiet,
        start,
    })
}

impl Arguments {
    /// Returns the arguments that some words before a command stand for.
    pub fn of_words(
        words: impl Iterator<Item = OsString>,
        command: &[OsString],
    ) -> Result<Arguments, String> {
        let all = [OsString::from("record")].into_iter().chain(words);
        let all = all.chain([OsString::from("--")]);
        let all = all.chain(command.iter().cloned());
        let parser = Arguments::augment_args(clap::Command::new("record"));
        let matches = parser.try_get_matches_from(all);
        let arguments = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
        arguments.map_err(|error| {
            // The other lines are the usage of another command.
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        })
    }
}

/// Records a trace. If that fails, prints the reason and returns the exit status.
pub fn trace(spec: TraceSpec) -> Result<TraceOutcome, Exit> {
    record(spec).map_err(|error| {
        say!("{error}");
        Exit::from(&error)
    })
}

/// Returns the command's exit status.
pub fn exit_status(outcome: &TraceOutcome) -> Exit {
    outcome.status.map_or(Exit::Done, Exit::from)
}

impl Tracing {
    /// Checks whether tracing can begin switched off: everything is recorded, and readers leave out the beginning.
    fn check_off(&self) -> anyhow::Result<()> {
        let has = |word: &str| {
            let mut texts = self.rules.texts().iter();
            texts.any(|(_, text)| text.contains(word))
        };
        if has("@sample=") || has(",sample=") {
            return Err(usage(
                "--trace=off: sampled calls are counted while they are recorded; give it, or sample=, to the commands that show the trace",
            ));
        }
        if !has("trace") {
            say!(
                "--trace=off: nothing switches tracing on, so nothing will be shown; add -T FUNCTION@trace_on"
            );
        }
        Ok(())
    }

    /// Returns the rules. `--max-stack` adds a limit of levels, unless `-D` gives a lower one.
    fn limited_rules(&self) -> Vec<(RuleOption, String)> {
        let mut rules = self.rules.texts().to_vec();
        match self.max_stack {
            Some(levels @ ..UFTRACES_MAX_STACK) => {
                let depth = |(option, text): &(RuleOption, String)| {
                    let depth = *option == RuleOption::Depth;
                    depth.then(|| text.trim().parse().ok()).flatten()
                };
                let given: Option<u32> = rules.iter().rev().find_map(depth);
                if given.is_none_or(|given| given > levels) {
                    rules.push((RuleOption::Depth, levels.to_string()));
                }
            }
            Some(_) => {
                eprintln!("dioptra: --max-stack does nothing: calls are recorded at any depth")
            }
            None => {}
        }
        rules
    }

    /// Returns the recording that the arguments ask for.
    pub fn spec(&self, traced: TracedCommand, folder: PathBuf) -> anyhow::Result<TraceSpec> {
        let rules = self.limited_rules();
        let texts = |option, texts: &[String]| -> Vec<(RuleOption, String)> {
            texts.iter().map(|text| (option, text.clone())).collect()
        };
        let arguments = texts(RuleOption::Argument, &self.argument);
        let returned = texts(RuleOption::Retval, &self.retval);
        let selector = RuleSelector::new(Choice {
            patches: self.patches.parse(self.style).map_err(usage)?,
            rules: [rules.clone(), arguments, returned].concat(),
            style: self.style,
            library_calls: match (self.no_libcall, self.nest_libcall) {
                (true, _) => LibraryCalls::None,
                (_, true) => LibraryCalls::OfAll,
                _ => LibraryCalls::OfProgram,
            },
            typed_values: self.auto_args,
        })
        .map_err(usage)?;
        let pending = PendingRules {
            style: self.style.word().to_owned(),
            rules: rules
                .iter()
                .map(|(option, text)| PendingRule {
                    option: option.letter().to_owned(),
                    text: text.clone(),
                })
                .collect(),
            off: !self.trace || self.disable,
        };
        if pending.off {
            self.check_off()?;
        }
        let options = std::env::args_os().skip(1);
        let ours = options.len().saturating_sub(traced.command.len());
        let options = options.take(ours);
        let options = options.map(|word| word.to_string_lossy().into_owned());
        let mut spec = TraceSpec::new(traced.command, folder);
        (spec.attach, spec.duration) = (traced.pid, traced.duration);
        spec.options = options.collect();
        spec.selector = Box::new(selector);
        spec.on_full = self.on_full;
        spec.clock = self.clock.0;
        spec.last = self.last;
        spec.memory = self.memory.unwrap_or_else(default_memory);
        spec.overhead = self.overhead;
        spec.seed = self.seed.unwrap_or_else(new_seed);
        let asked = |wanted| self.event.contains(&wanted);
        spec.scheduling = asked(Event::Schedule) || !self.no_sched && !self.no_event;
        spec.tasks = asked(Event::Tasks) || !self.no_event;
        spec.pending = Some(pending).filter(|pending| pending.off || !pending.rules.is_empty());
        Ok(spec)
    }
}
