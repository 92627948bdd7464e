//! Any bytes as the files of a trace. Whatever they are, the shown calls are well nested and in order, and there are
//! not more of them than the bytes can hold.

use dioptra_calls::{
    Demangle, FunctionNames, Scheduling, ShownStep, View, ViewSelection, call_tree, statistics,
};
use dioptra_filters::{MatchStyle, RuleOption, Rules};
use dioptra_symbols::SymbolOptions;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::directory::{FUNCTIONS, INFO, JOURNAL, NAMES, RECORDS, SWITCHES};
use dioptra_tracelayout::switches::{BlockHeader, ContextSwitch, SWITCH_SIZE, SwitchKind};
use std::collections::BTreeMap;
use std::fs;

const RULES: [&[(RuleOption, &str)]; 6] = [
    &[],
    &[(RuleOption::Filter, "a@sample=2")],
    &[(RuleOption::Time, "100ns"), (RuleOption::Hide, "b")],
    &[
        (RuleOption::Filter, "a@sample=p50"),
        (RuleOption::Trigger, "b@sample=1/2"),
    ],
    &[
        (RuleOption::Trigger, "a@trace_off"),
        (RuleOption::Trigger, "b@trace_on"),
    ],
    &[
        (RuleOption::Notrace, "c"),
        (RuleOption::Depth, "3"),
        (RuleOption::Caller, "a"),
    ],
];

/// Reads an input. The first byte chooses rules. Two lengths of two bytes each are the sizes of the journal and of
/// the table of functions, which follow; the rest are the records. Each input is read alone, with context switches
/// that are made from it, and with itself as the file of these.
pub fn exercise(bytes: &[u8]) {
    read(bytes, None);
    read(bytes, Some(&switches(bytes)));
    read(bytes, Some(bytes));
}

/// Switches of the thread that all chunks without ids have, as far apart as the bytes say.
fn switches(bytes: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    let mut time = 0;
    for part in bytes.rchunks_exact(2).take(4096) {
        time += u64::from(part[0]);
        let switch = ContextSwitch {
            time,
            cpu: u32::from(part[1] >> 4),
            kind: match part[1] % 4 {
                0 => SwitchKind::Wait,
                1 => SwitchKind::Preempted,
                _ => SwitchKind::In,
            },
        };
        made.extend(switch.to_bytes());
    }
    let count = (made.len() / SWITCH_SIZE) as u32;
    let (pid, tid) = (0, 0);
    let mut file = BlockHeader { count, pid, tid }.to_bytes().to_vec();
    file.extend(made);
    file
}

fn read(bytes: &[u8], switches: Option<&[u8]>) {
    let Some((&[rules, j0, j1, f0, f1], rest)) = bytes.split_first_chunk::<5>() else {
        return;
    };
    let journal = usize::from(u16::from_le_bytes([j0, j1])).min(rest.len());
    let (journal, rest) = rest.split_at(journal);
    let functions = usize::from(u16::from_le_bytes([f0, f1])).min(rest.len());
    let (functions, records) = rest.split_at(functions);
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("a file");
    };
    write(INFO, info().as_bytes());
    write(JOURNAL, journal);
    write(FUNCTIONS, functions);
    write(NAMES, b"abc");
    write(RECORDS, records);
    if let Some(switches) = switches {
        write(SWITCHES, switches);
    }
    let trace = Trace::open(folder.path()).expect("a trace");
    let names = FunctionNames::new(&trace, SymbolOptions::default(), Demangle::Simple);
    let mut selection = ViewSelection {
        rules: Rules::new(MatchStyle::Simple),
        no_libcall: rules & 0x40 != 0,
        off: rules & 0x80 != 0,
        scheduling: Scheduling {
            preemptions: rules & 0x20 == 0,
            tasks: rules & 0x08 != 0,
            everywhere: rules & 0x10 != 0,
            ..Scheduling::default()
        },
        ..ViewSelection::default()
    };
    for (option, text) in RULES[usize::from(rules & 0x3f) % RULES.len()] {
        selection.rules.add(*option, text).expect("a rule");
    }
    let view = View::new(&names, selection).expect("a view");
    let shown = (0..view.streams().len())
        .map(|place| check(&view, place))
        .sum::<usize>();
    for place in 0..view.streams().len() {
        // Both paths through a stream give the same.
        let mut steps = view.calls(place);
        let mut quick = view.calls(place);
        quick.each(|shown| assert_eq!(Some(shown), steps.next()));
        assert_eq!(steps.next(), None);
        assert_eq!(steps.losses(), quick.losses());
    }
    // An exit takes two bytes; calls without entries are begun and ended.
    let periods = switches.map_or(0, <[u8]>::len) / SWITCH_SIZE;
    let most = 16 * records.len() + (4096 + periods) * view.streams().len();
    assert!(shown <= most, "{shown} of {}", records.len());
    let merged: Vec<u64> = view.merged().map(|(_, shown)| shown.time()).collect();
    assert_eq!(merged.len(), shown);
    let sums = statistics(&view);
    for times in &sums.functions {
        assert!(times.calls == times.totals.count);
        assert!(names.get(times.function).len() < 1000);
    }
    let tree = call_tree(&view);
    assert!(tree.nodes().len() <= shown + 1);
    let calls: u64 = tree.nodes().iter().map(|node| node.calls).sum();
    assert_eq!(
        calls,
        sums.functions.iter().map(|times| times.calls).sum::<u64>()
    );
}

fn info() -> String {
    format!(
        r#"{{"schema":1,"layout":{VERSION},"recorder":"","command":[],"folder":"","options":[],"started_realtime":0,
        "clock":{{"source":"tsc","shift":0,"start":{{"ticks":1,"monotonic":1}}}},
        "host":{{"name":"","kernel":"","cpu":"","cpus":1}}}}"#
    )
}

/// Returns the number of shown steps of a stream. Checks that calls are nested, that each ends as the call that
/// began, and that time does not go back.
fn check(view: &View<'_>, place: usize) -> usize {
    let mut stacks: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    let (mut stack, mut last, mut count) = (0, 0, 0);
    // Filters may keep back steps of another stack: then only time is checked.
    let mut single = true;
    for shown in view.calls(place) {
        count += 1;
        if single {
            assert!(shown.time() >= last, "{shown:?} after {last}");
        }
        last = shown.time();
        let open = stacks.entry(stack).or_default();
        match shown {
            ShownStep::Enter { call, .. } if single => {
                assert_eq!(call.depth as usize, open.len(), "{shown:?}");
                open.push((call.function, call.entered.is_some()));
            }
            ShownStep::Leave {
                time, call, own, ..
            } if single => {
                let begun = open.pop();
                assert_eq!(
                    begun,
                    Some((call.function, call.entered.is_some())),
                    "{shown:?}"
                );
                assert_eq!(call.depth as usize, open.len());
                let duration = time - call.entered.unwrap_or(0);
                assert!(own <= duration, "{shown:?}");
            }
            ShownStep::Switch { stack: next, .. } => {
                stack = next;
                single = false;
            }
            _ => {}
        }
    }
    if single {
        assert!(stacks.values().all(Vec::is_empty), "calls are left open");
    }
    count
}
