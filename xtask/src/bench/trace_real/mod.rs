//! `cargo xtask bench trace --real`: real programs, traced and not, beside uftrace.
//!
//! Each program runs plain, then with each tool, in turns. What counts is the ratio of the CPU seconds of all that had to run
//! (the recorder's, too) to the plain run's; and whether the program printed the same.

mod programs;

use super::measure::{self, Run};
use super::trace::{Arguments, PEERS_BYTES, median, peer, records};
use super::trace_read;
use super::{build_dioptra, save, scratch, version};
use anyhow::{Context, Result, bail};
use programs::Real;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds until a tool is said to hang.
const PATIENCE: &str = "100";

/// A way to trace: what it is, our options, the peer's.
type Way = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);
const WAYS: [Way; 2] = [
    (
        "functions",
        &["--no-libcall", "--no-sched"],
        &["--no-libcall", "--no-event"],
    ),
    ("default", &[], &[]),
];

/// A tracer, or none.
#[derive(Clone, Copy, PartialEq)]
enum Tool {
    Ours,
    Peers,
}

const TOOLS: [Tool; 2] = [Tool::Ours, Tool::Peers];

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Ours => "dioptra",
            Tool::Peers => "uftrace",
        }
    }
}

/// The measurements of a tool with one program in one way.
#[derive(Default)]
struct Measured {
    runs: Vec<Run>,
    /// With next to nothing to do.
    idle: Vec<Run>,
    /// Whether the program printed the same each time.
    differs: bool,
    failure: Option<String>,
    calls: f64,
    /// The size of the trace's directory in bytes.
    bytes: f64,
    lost: Option<u64>,
}

struct Bench<'a> {
    dioptra: PathBuf,
    uftrace: Option<PathBuf>,
    folder: PathBuf,
    arguments: &'a Arguments,
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bench = Bench {
        dioptra: build_dioptra()?,
        uftrace: peer(arguments)?,
        folder: scratch()?.join("trace-real"),
        arguments,
    };
    fs::create_dir_all(&bench.folder)?;
    let programs = programs::find(&bench.folder, arguments.only.as_deref().unwrap_or_default())?;
    let mut rows = Vec::new();
    println!(
        "medians of {} runs. × plain: wall time and CPU time (with the recorder's) beside the plain run's; ns: CPU time of a \
         recorded call, less the plain run and the start; start: CPU time of a run with nothing to do, less the plain one's",
        arguments.rounds
    );
    println!(
        "{:16} {:9} {:8} {:>8} {:>8} {:>10} {:>6} {:>9} {:>7} {:>6} {:>9} {:>6} output",
        "program",
        "way",
        "tool",
        "× wall",
        "× CPU",
        "calls",
        "ns",
        "MB",
        "B/call",
        "lost",
        "start ms",
        "share"
    );
    for program in &programs {
        bench.program(program, &mut rows)?;
        if arguments.read {
            bench.read(program, &mut rows)?;
        }
    }
    let peer = bench
        .uftrace
        .as_deref()
        .map_or(Value::Null, |path| json!(version(path)));
    save(
        "trace-real",
        json!({"rounds": arguments.rounds, "uftrace": peer, "rows": rows}),
    )
}

impl Bench<'_> {
    fn program(&self, program: &Real, rows: &mut Vec<Value>) -> Result<()> {
        let mut plain = Vec::new();
        let mut plain_idle = Vec::new();
        let mut measured: Vec<Measured> = WAYS
            .iter()
            .flat_map(|_| [Measured::default(), Measured::default()])
            .collect();
        let truth = self.folder.join("plain.out");
        for round in 0..self.arguments.rounds {
            plain.push(self.plain(&program.plain, &truth)?);
            plain_idle.push(self.plain(&program.idle, &self.folder.join("idle.out"))?);
            for (at, way) in WAYS.iter().enumerate() {
                let mut tools = TOOLS;
                if round % 2 == 1 {
                    tools.reverse();
                }
                for tool in tools {
                    let measured = &mut measured[2 * at + usize::from(tool == Tool::Peers)];
                    self.measure(program, way, tool, &truth, measured)?;
                }
            }
        }
        if program.patch
            && let Some(patched) = self.patched(program)
        {
            println!("{:16} {patched}", program.name);
        }
        for (at, measured) in measured.iter().enumerate() {
            if measured.runs.is_empty() && measured.failure.is_none() {
                continue;
            }
            rows.push(row(
                program,
                WAYS[at / 2].0,
                TOOLS[at % 2],
                [&plain, &plain_idle],
                measured,
            ));
        }
        Ok(())
    }

    fn plain(&self, command: &[String], output: &Path) -> Result<Run> {
        let run = self.start(command, output)?;
        match &run.failure {
            None => Ok(run),
            Some(why) => bail!("{command:?}: {why}"),
        }
    }

    fn start(&self, words: &[String], output: &Path) -> Result<Run> {
        let (program, arguments) = words.split_first().context("no command")?;
        let mut command = Command::new(program);
        // Programs made for gprof leave a file behind; what Python's dictionaries do must not differ from run to run.
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("PYTHONHASHSEED", "0");
        let stdout = File::create(output).with_context(|| output.display().to_string())?;
        Ok(measure::start_into(&mut command, Stdio::from(stdout))?.finish(&["LOST"])?)
    }

    fn trace(&self, tool: Tool) -> PathBuf {
        self.folder.join(tool.name())
    }

    /// Nobody has to remove a large trace before it begins.
    fn clean(&self) {
        for tool in TOOLS {
            let trace = self.trace(tool);
            let _ = fs::remove_dir_all(trace.with_extension("old"));
            let _ = fs::remove_dir_all(trace);
        }
    }

    /// The command that traces another; `None` without the tool.
    fn tracing(
        &self,
        program: &Real,
        way: &Way,
        tool: Tool,
        what: &[String],
    ) -> Option<Vec<String>> {
        // A peer that hangs must not leave the program behind.
        let mut words: Vec<String> = ["timeout", "-s", "KILL", PATIENCE]
            .iter()
            .map(|&word| word.to_owned())
            .collect();
        let (path, options, patch) = match tool {
            Tool::Ours => (&self.dioptra, way.1, program.patch),
            Tool::Peers => (
                self.uftrace.as_ref()?,
                way.2,
                program.patch || program.peer_patches,
            ),
        };
        words.push(path.to_string_lossy().into_owned());
        let record: &[&str] = if tool == Tool::Ours {
            &["trace", "record", "-q"]
        } else {
            &["record"]
        };
        words.extend(record.iter().chain(options).map(|&word| word.to_owned()));
        if patch {
            words.extend(["-P".to_owned(), ".".to_owned()]);
        }
        words.extend([
            "-d".to_owned(),
            self.trace(tool).to_string_lossy().into_owned(),
        ]);
        words.extend_from_slice(what);
        Some(words)
    }

    /// One run with work to do and one without.
    fn measure(
        &self,
        program: &Real,
        way: &Way,
        tool: Tool,
        truth: &Path,
        measured: &mut Measured,
    ) -> Result<()> {
        if measured.failure.is_some() {
            return Ok(());
        }
        let Some(idle) = self.tracing(program, way, tool, &program.idle) else {
            return Ok(());
        };
        let output = self.folder.join("traced.out");
        self.clean();
        let idle = self.start(&idle, &output)?;
        let work = self
            .tracing(program, way, tool, &program.command)
            .unwrap_or_default();
        self.clean();
        let run = self.start(&work, &output)?;
        measured.differs |= fs::read(&output)? != fs::read(truth)?;
        measured.failure = run.failure.clone();
        if run.failure.is_some() {
            return Ok(());
        }
        measured.runs.push(run);
        measured.idle.push(idle);
        // The output is nearly the same each time.
        if measured.runs.len() == self.arguments.rounds as usize {
            self.count(tool, measured)?;
        }
        Ok(())
    }

    /// Counts the calls in the trace.
    fn count(&self, tool: Tool, measured: &mut Measured) -> Result<()> {
        let trace = self.trace(tool);
        for entry in fs::read_dir(&trace)? {
            measured.bytes += entry?.metadata()?.len() as f64;
        }
        if tool == Tool::Peers {
            measured.calls = records(&trace)? / PEERS_BYTES;
            return Ok(());
        }
        let mut command = Command::new(&self.dioptra);
        command
            .args(["trace", "report", "--format", "csv", "-d"])
            .arg(&trace);
        let report = command.stdin(Stdio::null()).output()?.stdout;
        // Calls stand last.
        let lines = String::from_utf8_lossy(&report);
        let calls = lines.lines().filter(|line| !line.starts_with("linux:"));
        measured.calls = calls
            .filter_map(|line| line.rsplit(',').next()?.parse::<f64>().ok())
            .sum();
        let info: Value = serde_json::from_slice(&fs::read(trace.join("info.json"))?)?;
        let ending = &info["ending"];
        let counts = [
            "lost",
            "missed_in_handlers",
            "missed_no_memory",
            "lost_switches",
        ];
        measured.lost = counts.iter().map(|count| ending[count].as_u64()).sum();
        Ok(())
    }

    /// Returns the number of functions that each tool has patched.
    fn patched(&self, program: &Real) -> Option<String> {
        let trace = self.tracing(program, &WAYS[0], Tool::Ours, &program.idle)?;
        self.start(&trace, &self.folder.join("idle.out")).ok()?;
        let journal = fs::read_to_string(self.trace(Tool::Ours).join("journal.jsonl")).ok()?;
        let ours: u64 = journal
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|entry| {
                entry["module"]["methods"]
                    .as_object()
                    .map(|methods| methods.values().filter_map(Value::as_u64).sum::<u64>())
            })
            .sum();
        let mut theirs = "uftrace is not there".to_owned();
        if let Some(mut words) = self.tracing(program, &WAYS[0], Tool::Peers, &program.idle) {
            let at = words.iter().position(|word| word == "record")?;
            words.insert(at + 1, "-v".to_owned());
            let output = Command::new(words.first()?)
                .args(words.get(1..)?)
                .current_dir(&self.folder)
                .stdin(Stdio::null())
                .output()
                .ok()?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let said = |what: &str| -> u64 {
                let counts = text.lines().filter_map(|line| line.split_once(what));
                counts
                    .filter_map(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok())
                    .sum()
            };
            theirs = format!("uftrace {} of {}", said("patched:"), said("total:"));
        }
        Some(format!("functions patched: dioptra {ours}, {theirs}"))
    }

    /// Reads the traces of functions.
    fn read(&self, program: &Real, rows: &mut Vec<Value>) -> Result<()> {
        let mut counts = [0_u64; 2];
        for (tool, count) in TOOLS.into_iter().zip(&mut counts) {
            let mut measured = Measured::default();
            let Some(words) = self.tracing(program, &WAYS[0], tool, &program.command) else {
                continue;
            };
            let _ = fs::remove_dir_all(self.trace(tool));
            if self
                .start(&words, &self.folder.join("traced.out"))?
                .failure
                .is_none()
            {
                self.count(tool, &mut measured)?;
                *count = 2 * measured.calls as u64;
            }
        }
        let traces = TOOLS.map(|tool| self.trace(tool));
        let uftrace = self.uftrace.as_deref().filter(|_| counts[1] > 0);
        rows.extend(trace_read::read_both(
            &program.name,
            &self.dioptra,
            uftrace,
            &traces,
            counts,
            self.arguments.rounds,
        )?);
        Ok(())
    }
}

fn row(
    program: &Real,
    way: &str,
    tool: Tool,
    [plain, plain_idle]: [&[Run]; 2],
    measured: &Measured,
) -> Value {
    let median_of =
        |runs: &[Run], value: fn(&Run) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
    let cpu: fn(&Run) -> f64 = |run| run.cpu;
    let wall: fn(&Run) -> f64 = |run| run.wall;
    let start = median_of(&measured.idle, cpu) - median_of(plain_idle, cpu);
    let (ours, theirs) = (median_of(&measured.runs, cpu), median_of(plain, cpu));
    let nanoseconds = (ours - theirs - start) / measured.calls * 1e9;
    let share = start / (ours - theirs);
    let slower = [
        median_of(&measured.runs, wall) / median_of(plain, wall),
        ours / theirs,
    ];
    let per_call = measured.bytes / measured.calls;
    let output = match (&measured.failure, measured.differs) {
        (Some(why), _) => why.clone(),
        (None, true) => "differs".to_owned(),
        (None, false) => "identical".to_owned(),
    };
    println!(
        "{:16} {:9} {:8} {:8.2} {:8.2} {:10} {:6.1} {:9.1} {:7.2} {:>6} {:9.0} {:6.2} {output}",
        program.name,
        way,
        tool.name(),
        slower[0],
        slower[1],
        measured.calls,
        nanoseconds,
        measured.bytes / 1e6,
        per_call,
        measured
            .lost
            .map_or("-".to_owned(), |lost| lost.to_string()),
        start * 1e3,
        share,
    );
    json!({
        "program": program.name, "way": way, "tool": tool.name(), "command": program.command,
        "times_plain": {"wall": slower[0], "cpu": slower[1]}, "plain_cpu_seconds": theirs, "calls": measured.calls,
        "nanoseconds_a_call": nanoseconds, "bytes": measured.bytes, "bytes_a_call": per_call, "lost": measured.lost,
        "start_cpu_seconds": start, "start_share": share, "output": output,
    })
}
