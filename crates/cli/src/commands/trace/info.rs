//! `dioptra trace info`: the contents of a trace.

mod machine;
mod symbols;
mod tasks;

pub use tasks::tasks;

use super::selected::{Data, Naming, spelled};
use super::usage;
use crate::exit::Exit;
use crate::formats::TextOrJson;
use crate::screen::{Spelling, stdout};
use clap::ValueEnum;
use dioptra_calls::FunctionNames;
use dioptra_tables::{Facts, escape};
use dioptra_trace_report::{number_of, trace_facts};
use dioptra_tracedata::{SampledFunctions, Trace};
use dioptra_tracelayout::EventPlace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

/// Arguments of `dioptra trace info`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra trace info                         what the trace in dioptra.trace holds
  dioptra trace info -d other.trace --task   its threads, children below their parents")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    /// List the functions of the trace's table, by module, with how their calls are found
    #[arg(long)]
    symbols: bool,
    /// List the threads, children below their parents
    #[arg(long)]
    task: bool,
    /// Show this machine as it is now, and what of its settings matters; needs no trace
    #[arg(long, conflicts_with_all = ["symbols", "task"])]
    system: bool,
    /// Output format
    // Checked later, so that every option of uftrace's other commands is taken.
    #[arg(long, value_name = "text|json", default_value = "text")]
    format: String,
    #[command(flatten)]
    naming: Naming,
    /// With --symbols: list all functions of this program or library; needs no trace
    // Without it does nothing, as in uftrace. A program's arguments may follow.
    #[arg(value_name = "FILE", num_args = 0.., trailing_var_arg = true)]
    words: Vec<PathBuf>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let format = TextOrJson::from_str(&arguments.format, false)
        .map_err(|_| usage("--format: use text or json"))?;
    let file = arguments.words.first().filter(|_| arguments.symbols);
    if arguments.system || file.is_some() {
        if format == TextOrJson::Json {
            return Err(usage("--format json: is of traces"));
        }
        let mut out = io::BufWriter::new(stdout(Spelling::Text));
        match file {
            Some(file) => symbols::of_file(file, &arguments.naming, &mut out)?,
            None => machine::now(&mut out)?,
        }
        out.flush()?;
        return Ok(Exit::Done);
    }
    let trace = arguments.data.open()?;
    let mut facts = Facts::new();
    trace_facts(&trace, &mut facts);
    let facts = spelled(facts);
    let mut out = io::BufWriter::new(stdout(Spelling::Text));
    if format == TextOrJson::Json {
        serde_json::to_writer_pretty(&mut out, &json(&trace, &facts)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if arguments.symbols {
        symbols::of_trace(&trace, &arguments.naming, &mut out)?;
    } else if arguments.task {
        tasks::threads(&trace, &mut out)?;
    } else {
        whole(&trace, &arguments.naming.names(&trace)?, &mut out)?;
        facts.write_text(&mut out)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Writes all facts about a trace.
pub fn whole(trace: &Trace, names: &FunctionNames<'_>, out: &mut impl Write) -> io::Result<()> {
    text(trace, out)?;
    if !trace.sampled().is_empty() {
        sampling(trace, names, out)?;
    }
    Ok(())
}

fn json(trace: &Trace, facts: &Facts) -> Value {
    let info = trace.info();
    let processes: Vec<Value> = trace
        .processes()
        .iter()
        .map(|process| {
            json!({
                "pid": process.pid,
                "parent": process.parent,
                "cause": process.cause,
                "time": process.time,
                "executable": process.executable,
                "arguments": process.arguments,
                "end": process.end.map(|(time, status)| json!({"time": time, "status": status})),
            })
        })
        .collect();
    let threads: Vec<Value> = trace
        .streams()
        .iter()
        .map(|stream| {
            json!({
                "stream": stream.stream,
                "pid": stream.pid,
                "tid": stream.tid,
                "parent": stream.parent,
                "name": trace.thread_name(stream),
                "chunks": stream.chunk_count(),
                "lost": stream.lost,
                "first_chunk": stream.first_sequence,
            })
        })
        .collect();
    let modules: Vec<Value> = trace.modules().map(|module| json!(module)).collect();
    let damage: Vec<String> = trace.damage().iter().map(ToString::to_string).collect();
    json!({
        "schema": 1,
        "facts": facts,
        "info": info,
        "processes": processes,
        "threads": threads,
        "modules": modules,
        "functions": functions(trace),
        "context_switches": trace.switch_count(),
        "task_events": task_events(trace),
        "sampled": trace.sampled(),
        "counted": counted(trace)
            .iter()
            .map(|(function, (seen, shown))| json!({"function": function, "seen": seen, "shown": shown}))
            .collect::<Vec<_>>(),
        "record_bytes": trace.record_bytes(),
        "damage": damage,
        "notes": trace.notes(),
    })
}

/// Returns the number of functions that have ids. Id 0 and the ids of events do not count.
fn functions(trace: &Trace) -> u64 {
    let ids = trace
        .event_id(EventPlace::Schedule)
        .map_or(trace.function_count(), |id| id as usize);
    ids.saturating_sub(1) as u64
}

/// Returns the number of events about threads: starts, ends and new names.
fn task_events(trace: &Trace) -> u64 {
    let streams = trace.streams().iter();
    let events = streams.map(|stream| trace.task_events(stream).len() as u64);
    events.sum()
}

/// Returns the executions of sampled functions, and the chosen ones among them, over all threads.
fn counted(trace: &Trace) -> BTreeMap<u32, (u64, u64)> {
    let mut counted: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for ((_, function), (seen, shown)) in trace.counted() {
        let sum = counted.entry(*function).or_default();
        *sum = (sum.0.saturating_add(*seen), sum.1.saturating_add(*shown));
    }
    counted
}

/// Writes the numbers of sampled functions.
fn sampling(trace: &Trace, names: &FunctionNames<'_>, out: &mut impl Write) -> io::Result<()> {
    const MOST: usize = 20;
    writeln!(out, "#")?;
    heading("sampling", out)?;
    let counted = counted(trace);
    let functions = trace.sampled().iter().flat_map(|group| {
        let known = |function: &u32| {
            (
                *function,
                counted.get(function).copied().unwrap_or_default(),
            )
        };
        group
            .functions
            .iter()
            .map(known)
            .map(move |known| (group, known))
    });
    let mut called: Vec<_> = functions.filter(|(_, (_, (seen, _)))| *seen > 0).collect();
    called.sort_by_key(|(_, (function, (seen, _)))| (std::cmp::Reverse(*seen), *function));
    let sampled: usize = trace.sampled().iter().map(|g| g.functions.len()).sum();
    let text = format!("{sampled} sampled, {} of them called", called.len());
    line("functions", &text, out)?;
    let is_random = |group: &SampledFunctions| group.how == "auto" || group.how.starts_with("1/");
    if let Some(seed) = trace.info().seed
        && trace.sampled().iter().any(is_random)
    {
        line("seed", &seed.to_string(), out)?;
    }
    for (group, (function, (seen, shown))) in called.iter().take(MOST) {
        let name = names.get(*function);
        let what = if group.tree {
            "with what it calls"
        } else {
            "alone"
        };
        let text = format!("{name}: {shown} of {seen} calls recorded, {what}");
        line(&format!("sample={}", group.how), &text, out)?;
    }
    if let Some(more @ 1..) = called.len().checked_sub(MOST) {
        writeln!(out, "# and {more} more")?;
    }
    if trace.info().ending.is_none() {
        writeln!(
            out,
            "# The recording has no end, so calls that were not chosen are not known."
        )?;
    }
    Ok(())
}

fn heading(text: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# {text}\n# {}", "=".repeat(text.len()))
}

fn line(name: &str, value: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# {name:<20}: {}", escape(value))
}

fn text(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let info = trace.info();
    heading("system information", out)?;
    line("program version", &info.recorder, out)?;
    line("recorded on", &date(info.started_realtime), out)?;
    line("cmdline", &info.command.join(" "), out)?;
    line("started in", &info.folder, out)?;
    if !info.options.is_empty() {
        line("options", &info.options.join(" "), out)?;
    }
    machine::system(&info.host, out)?;
    let clock = match trace.clock().is_measured() {
        true => info.clock.source.clone(),
        false => format!("{} (not measured)", info.clock.source),
    };
    line("clock", &clock, out)?;
    writeln!(out, "#")?;
    heading("process information", out)?;
    line(
        "number of processes",
        &trace.processes().len().to_string(),
        out,
    )?;
    line("number of threads", &trace.streams().len().to_string(), out)?;
    let tasks: Vec<String> = trace
        .streams()
        .iter()
        .take(16)
        .map(|stream| format!("{}({})", stream.tid, trace.thread_name(stream)))
        .collect();
    let more = if trace.streams().len() > 16 {
        ", …"
    } else {
        ""
    };
    line("task list", &format!("{}{more}", tasks.join(", ")), out)?;
    if let Some(process) = trace.processes().first() {
        line("exe image", &process.executable, out)?;
        let module = trace
            .modules()
            .find(|module| module.path == process.executable);
        if let Some(module) = module.filter(|module| !module.build_id.is_empty()) {
            line("build id", &module.build_id, out)?;
        }
    }
    if let Some(pending) = &info.pending {
        line("pattern", &pending.style, out)?;
    }
    let status = match &info.ending {
        None => "not known: the recording has no end".to_owned(),
        Some(ending) => match (ending.signal, ending.status) {
            (Some(signal), _) => format!("killed by signal {signal}"),
            (None, Some(status)) => format!("exited with code: {status}"),
            (None, None) => "it went on".to_owned(),
        },
    };
    line("exit status", &status, out)?;
    if let Some(ending) = &info.ending {
        let elapsed = ending
            .clock
            .monotonic
            .saturating_sub(info.clock.start.monotonic);
        let elapsed = format!(
            "{}.{:09} sec",
            elapsed / 1_000_000_000,
            elapsed % 1_000_000_000
        );
        line("elapsed time", &elapsed, out)?;
        if let Some(usage) = &ending.usage {
            machine::used(usage, out)?;
        }
    }
    writeln!(out, "#")?;
    heading("trace information", out)?;
    line("functions", &functions(trace).to_string(), out)?;
    line("record bytes", &trace.record_bytes().to_string(), out)?;
    let count = |count: u64| match count {
        0 => "none".to_owned(),
        count => count.to_string(),
    };
    line("context switches", &count(trace.switch_count()), out)?;
    line("task events", &count(task_events(trace)), out)?;
    let lost: u64 = trace
        .streams()
        .iter()
        .fold(0, |sum, stream| sum.saturating_add(stream.lost));
    line("lost between chunks", &lost.to_string(), out)?;
    let mut methods: BTreeMap<&str, u64> = BTreeMap::new();
    for module in trace.modules() {
        for (method, count) in &module.methods {
            *methods.entry(method).or_default() += u64::from(*count);
        }
    }
    let methods: Vec<String> = methods
        .iter()
        .map(|(method, count)| format!("{method} {count}"))
        .collect();
    line("methods", &methods.join(", "), out)?;
    for module in trace.modules() {
        let build_id = match module.build_id.as_str() {
            "" => "no build id",
            build_id => build_id,
        };
        line(
            "module",
            &format!(
                "{} ({build_id}): {}",
                module.path,
                number_of(u64::from(module.count), "function")
            ),
            out,
        )?;
        for refusal in &module.refused {
            let examples: Vec<String> = refusal
                .examples
                .iter()
                .take(3)
                .map(|place| format!("{place:#x}"))
                .collect();
            let text = format!(
                "{}: {} (at {})",
                refusal.count,
                refusal.reason,
                examples.join(", ")
            );
            line("  refused", &text, out)?;
        }
    }
    for note in trace.notes() {
        line("note", note, out)?;
    }
    for damage in trace.damage() {
        line("damage", &damage.to_string(), out)?;
    }
    Ok(())
}

/// Formats nanoseconds since 1970 as a date and time in UTC, to the second.
fn date(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last; 400 years are a cycle.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_704_067_199, "2023-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), text);
        }
    }
}
