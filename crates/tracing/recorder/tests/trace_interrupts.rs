//! Handlers of signals that interrupt calls anywhere, also in the middle of the tracer's hooks: all that they call is
//! recorded, where it happened, and nothing else is disturbed.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_testprograms::{Language, Program, or_skip};
use traces::{Event, METHODS, Stream, alone, by_rules, everything, read, trace};

/// The number of interrupts. Some thousand rounds pass between two.
const INTERRUPTS: u64 = 150;

/// A call, the calls in it, and whether it returned.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    name: String,
    inside: Vec<Call>,
    returned: bool,
}

/// Returns the calls of a stream, as a tree.
fn tree(stream: &Stream) -> Vec<Call> {
    let mut open = vec![Vec::new()];
    let mut names = Vec::new();
    for event in &stream.events {
        let returned = match event {
            Event::Entry(name) => {
                names.push(name.clone());
                open.push(Vec::new());
                continue;
            }
            Event::Exit(_) => true,
            Event::Unwound(_) | Event::Discarded(_) => false,
            Event::Lost(_) => panic!("lost"),
        };
        let inside = open.pop().unwrap();
        let name = names.pop().unwrap();
        open.last_mut().unwrap().push(Call {
            name,
            inside,
            returned,
        });
    }
    assert!(names.iter().all(|name| name == "main"), "open: {names:?}");
    open.into_iter().flatten().collect()
}

/// Takes the handlers' calls out, checks the calls in them, and returns their number.
fn take_handlers(calls: &mut Vec<Call>, jumps: bool) -> u64 {
    let inner =
        |call: &Call| (call.name.as_str(), call.inside.len(), call.returned) == ("inner", 0, true);
    let before = calls.len();
    calls.retain(|call| {
        if call.name == "quiet" && call.inside.is_empty() {
            return false;
        }
        if call.name != "handler" {
            return true;
        }
        assert!(
            call.inside.len() == 2 && call.inside.iter().all(inner),
            "{call:?}"
        );
        assert!(call.returned || jumps, "{call:?}");
        false
    });
    let here = (before - calls.len()) as u64;
    here + calls
        .iter_mut()
        .map(|call| take_handlers(&mut call.inside, jumps))
        .sum::<u64>()
}

fn find<'c>(calls: &'c [Call], name: &str) -> Option<&'c [Call]> {
    calls.iter().find_map(|call| match call.name == name {
        true => Some(call.inside.as_slice()),
        false => find(&call.inside, name),
    })
}

/// Writes the calls of a round as names with depths.
fn shape(call: &Call, depth: usize, text: &mut String) {
    text.push_str(&format!("{depth}{} ", call.name));
    call.inside
        .iter()
        .for_each(|call| shape(call, depth + 1, text));
}

/// Checks that a forked child does the rest of the handler and of the round, and returns from `rounds`.
fn goes_on(child: &Stream, what: &str) {
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    for event in &child.events {
        match event {
            Event::Entry(name) => begun.push(name.as_str()),
            Event::Exit(name) => ended.push(name.as_str()),
            _ => panic!("{what}: {event:?}"),
        }
    }
    // The child may have been forked before there was a round.
    begun.retain(|name| !["handler", "quiet", "inner", "rounds"].contains(name));
    ended.retain(|name| !["handler", "quiet", "inner"].contains(name));
    let begins = ["round_of", "first", "second", "third", "first"];
    let ends = ["first", "third", "second", "first", "round_of", "rounds"];
    let is_right = begins.ends_with(&begun) && !ended.is_empty() && ends.ends_with(&ended);
    assert!(is_right, "{what}: {:?}", child.events);
    let open = &child.open;
    assert!(open.iter().all(|name| name == "main"), "{what}: {open:?}");
}

#[test]
fn handlers_are_recorded_wherever_they_interrupt() {
    let _turn = alone();
    for compiler in ["gcc", "clang"] {
        for (method, flags, plain) in METHODS {
            if method == "xray" && compiler == "gcc" {
                continue;
            }
            let program = or_skip!(
                Program::new(Language::C, "trace-interrupts")
                    .no_flags()
                    .compiler(compiler)
                    .flags(["-O1", "-g", "-fno-optimize-sibling-calls"])
                    .flags(flags.iter().copied())
                    .build()
            );
            for kind in ["return", "stack", "jump", "fork", "quiet"] {
                let what = format!("{compiler} {method} {kind}");
                let folder = tempfile::tempdir().unwrap();
                let count = INTERRUPTS.to_string();
                let command = ["timeout", "60", program.to_str().unwrap(), &count, kind];
                let (outcome, output) = trace(folder.path(), &command, everything(plain), |_| {});
                assert_eq!(
                    outcome.status.map(|status| status.exit_code()),
                    Some(0),
                    "{what}: {output}"
                );
                let ending = &outcome.ending;
                assert_eq!(
                    (ending.lost, ending.missed_in_handlers),
                    (0, Some(0)),
                    "{what}"
                );
                let said: Vec<u64> = output
                    .split_whitespace()
                    .map(|n| n.parse().unwrap())
                    .collect();
                let trace = read(folder.path());
                let is_it =
                    |stream: &&Stream| stream.events.contains(&Event::Entry("rounds".to_owned()));
                let stream = trace.streams.values().find(is_it).expect("a stream");
                let mut calls = tree(stream);
                let jumps = kind == "jump";
                let handlers = take_handlers(&mut calls, jumps);
                // Where the tracer patches functions that no compiler prepared, `quiet` is among them.
                if kind != "quiet" {
                    assert_eq!(handlers, said[1], "{what}: handlers");
                }
                let children: Vec<&Stream> =
                    trace.streams.values().filter(|s| s.parent != 0).collect();
                children.iter().for_each(|child| goes_on(child, &what));
                match kind {
                    "fork" => assert_eq!(children.len() as u64, said[1] / 3, "{what}"),
                    "quiet" => assert_eq!(children.len() as u64, said[1], "{what}"),
                    _ => assert!(children.is_empty(), "{what}"),
                }
                let rounds = find(&calls, "rounds").expect("the rounds");
                let whole = "0round_of 1first 1second 2third 1first ";
                let mut left = 0;
                for call in rounds {
                    let mut text = String::new();
                    shape(call, 0, &mut text);
                    if call.returned {
                        assert_eq!(text, whole, "{what}");
                    } else {
                        left += 1;
                        assert!(jumps && whole.starts_with(&text), "{what}: {text}");
                    }
                }
                // A function that is left before its hook has begun is not recorded as a call.
                let hidden = said[0] - rounds.len() as u64;
                assert!(
                    hidden <= left && left <= said[1] / 3,
                    "{what}: {hidden} {left}"
                );
                eprintln!("{what}: {said:?}, {left} left");
            }
        }
    }
}

/// A program may leave a hook at any instruction without a report. The next hook notices that, also the hook of an
/// exit.
#[test]
fn calls_that_are_left_before_any_instruction_have_ends() {
    let _turn = alone();
    for (flags, plain) in [
        (&["-fpatchable-function-entry=5"] as &[&str], false),
        (&[], true),
    ] {
        let program = or_skip!(
            Program::new(Language::C, "trace-left")
                .no_flags()
                .flags(["-O1", "-g"])
                .flags(flags.iter().copied())
                .build()
        );
        let folder = tempfile::tempdir().unwrap();
        let command = [program.to_str().unwrap(), "10"];
        let (outcome, output) = trace(folder.path(), &command, everything(plain), |spec| {
            spec.selector = by_rules(Some("attempt;leaf"), &[]);
        });
        let status = outcome.status.map(|status| status.exit_code());
        assert_eq!(status, Some(0), "{flags:?}: {output}");
        let attempts: u64 = output.trim().parse().unwrap();
        assert!(attempts > 60, "{flags:?}: {attempts}");
        let read = read(folder.path());
        let stream = read.streams.values().next().unwrap();
        let mut calls = tree(stream);
        if calls.first().is_some_and(|call| call.name == "main") {
            calls = calls.remove(0).inside;
        }
        assert_eq!(calls.len() as u64, attempts, "{flags:?}");
        for call in &calls {
            assert_eq!(call.name, "attempt", "{flags:?}: {call:?}");
            assert!(
                call.returned && call.inside.len() <= 1,
                "{flags:?}: {call:?}"
            );
            assert!(
                call.inside
                    .iter()
                    .all(|call| call.name == "leaf" && call.inside.is_empty()),
                "{flags:?}: {call:?}"
            );
        }
        let is_left = |call: &&Call| call.inside.iter().any(|call| !call.returned);
        assert!(calls.iter().filter(is_left).count() > 20, "{flags:?}");
    }
}
