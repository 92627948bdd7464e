//! `/api/trace`: what a trace holds.

use super::loaded::{LoadedTrace, OpenTrace};
use super::selected::thread_keys;
use super::tables::add_truncated;
use crate::api::{MachineInfo, TraceAnswer, TraceCount, TraceModule, TraceProcess, TraceThread};
use crate::failure::Failure;
use crate::texts;
use dioptra_tables::Facts;
use dioptra_trace_report::trace_facts;
use dioptra_tracedata::{ProcessCause, Trace, TraceInfo};
use dioptra_tracelayout::EventPlace;

/// The number of processes, threads, modules and notes in an answer at most.
const MOST: usize = 1000;

/// Answers `/api/trace`.
pub(crate) fn answer(loaded: &LoadedTrace) -> Result<TraceAnswer, Failure> {
    let (label, path) = (loaded.label.clone(), loaded.path.clone());
    let (duration, ticks) = (loaded.duration, loaded.ticks);
    loaded.run(move |open| {
        let trace = open.trace;
        let info = trace.info();
        let mut facts = Facts::new();
        trace_facts(trace, &mut facts);
        add_truncated(open, &mut facts);
        let sampled = trace
            .sampled()
            .iter()
            .map(|group| group.functions.len() as u64);
        let words = |words: &[String]| words.iter().map(|word| texts::name(word)).collect();
        Ok(TraceAnswer {
            profile: open.index,
            generation: open.generation,
            label,
            path,
            size_bytes: trace.record_bytes(),
            machine: machine(info),
            command_line: words(&info.command),
            options: words(&info.options),
            recorder: texts::name(&info.recorder),
            duration_ns: duration,
            first_time_ns: open.first,
            clock: texts::name(&info.clock.source),
            ticks,
            ending: ending(info),
            rules: rules(info),
            functions: functions(trace),
            switches: trace.switch_count(),
            processes: processes(open),
            threads: threads(trace),
            modules: modules(trace),
            sampled: sampled.sum(),
            notes: trace
                .notes()
                .iter()
                .take(MOST)
                .map(|note| texts::name(note))
                .collect(),
            facts: texts::facts(&facts),
        })
    })
}

fn machine(info: &TraceInfo) -> MachineInfo {
    let host = &info.host;
    let known = |text: &str| (!text.is_empty()).then(|| texts::name(text));
    MachineInfo {
        hostname: known(&host.name),
        os_release: known(&host.kernel),
        arch: None,
        cpu: known(&host.cpu),
        cpus_online: (host.cpus > 0).then_some(host.cpus),
        memory_kib: (host.memory > 0).then_some(host.memory >> 10),
    }
}

/// Returns how the command ended.
fn ending(info: &TraceInfo) -> String {
    match &info.ending {
        None => "not known: the recording has no end".to_owned(),
        Some(ending) => match (ending.signal, ending.status) {
            (Some(signal), _) => format!("killed by signal {signal}"),
            (None, Some(status)) => format!("exit status {status}"),
            (None, None) => "it went on".to_owned(),
        },
    }
}

/// Returns the rules of the recording that readers apply.
fn rules(info: &TraceInfo) -> Vec<String> {
    let Some(pending) = &info.pending else {
        return Vec::new();
    };
    let rules = pending.rules.iter();
    let rules = rules.map(|rule| texts::name(&format!("{} {}", rule.option, rule.text)));
    let off = pending
        .off
        .then(|| "tracing is off at the start".to_owned());
    rules.chain(off).take(MOST).collect()
}

/// Returns the number of functions that have ids. Id 0 and the ids of events do not count.
fn functions(trace: &Trace) -> u64 {
    let ids = trace.event_id(EventPlace::Schedule);
    let ids = ids.map_or(trace.function_count(), |id| id as usize);
    ids.saturating_sub(1) as u64
}

fn processes(open: &OpenTrace<'_>) -> Vec<TraceProcess> {
    let processes = open.trace.processes().iter().take(MOST);
    let processes = processes.map(|process| TraceProcess {
        key: process.pid.to_string(),
        pid: process.pid,
        parent: process.parent,
        cause: match process.cause {
            ProcessCause::Exec => "exec".to_owned(),
            ProcessCause::Fork => "fork".to_owned(),
        },
        executable: texts::name(&process.executable),
        begin_ns: open.since_first(process.time),
    });
    processes.collect()
}

fn threads(trace: &Trace) -> Vec<TraceThread> {
    let streams = trace.streams().iter().take(MOST);
    let threads = streams.map(|stream| TraceThread {
        key: thread_keys(stream.pid, stream.tid),
        name: texts::name(trace.thread_name(stream)),
        tid: stream.tid,
        pid: stream.pid,
        bytes: stream.bytes,
        lost: stream.lost,
    });
    threads.collect()
}

fn modules(trace: &Trace) -> Vec<TraceModule> {
    let modules = trace.modules().take(MOST);
    let modules = modules.map(|module| TraceModule {
        path: texts::name(&module.path),
        build_id: texts::name(&module.build_id),
        functions: module.count,
        methods: counts(module.methods.iter().map(|(name, count)| (name, *count))),
        refused: counts(
            module
                .refused
                .iter()
                .map(|refused| (&refused.reason, refused.count)),
        ),
    });
    modules.collect()
}

fn counts<'a>(counts: impl Iterator<Item = (&'a String, u32)>) -> Vec<TraceCount> {
    let counts = counts.map(|(name, count)| TraceCount {
        name: texts::name(name),
        count,
    });
    counts.collect()
}
