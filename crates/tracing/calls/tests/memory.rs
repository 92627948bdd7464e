//! Filters keep open calls, not past ones.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/written.rs"]
mod written;

use dioptra_calls::{ShownStep, View, ViewSelection};
use dioptra_filters::{MatchStyle, RuleOption, Rules};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use written::{Act, names, trace};

struct Counting;

thread_local! {
    static USED: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    USED.set(USED.get() + bytes);
    PEAK.set(PEAK.get().max(USED.get()));
}

// SAFETY: everything is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `f1` calls `f2`, which calls `f3` twice, very often.
fn long(calls: u64) -> Vec<Act> {
    let mut acts = vec![Act::Enter(1_000, 1)];
    let mut time = 1_000;
    let mut next = || {
        time += 10;
        time
    };
    for _ in 0..calls {
        acts.push(Act::Enter(next(), 2));
        for _ in 0..2 {
            acts.push(Act::Enter(next(), 3));
            acts.push(Act::Leave(next()));
        }
        acts.push(Act::Leave(next()));
    }
    acts.push(Act::Leave(next()));
    acts
}

#[test]
fn memory_does_not_grow_with_the_number_of_calls() {
    for rule in [
        (RuleOption::Time, "1s"),
        (RuleOption::Time, "35ns"),
        (RuleOption::Caller, "^f4$"),
        (RuleOption::Trigger, "f2@time=1s"),
    ] {
        let peak = |calls| {
            let folder = tempfile::tempdir().expect("a folder");
            let trace = trace(&folder.path().join("t"), 4, &[long(calls)], 5_000);
            let names = names(&trace);
            let mut rules = Rules::new(MatchStyle::Regex);
            rules.add(rule.0, rule.1).expect("a rule");
            let selection = ViewSelection {
                rules,
                ..ViewSelection::default()
            };
            let view = View::new(&names, selection).expect("a view");
            let mut shown = 0_u64;
            let before = USED.get();
            PEAK.set(before);
            view.calls(0)
                .each(|step| shown += u64::from(matches!(step, ShownStep::Enter { .. })));
            PEAK.get() - before
        };
        let (few, many) = (peak(1_000), peak(40_000));
        assert!(many <= few + 4_096, "{rule:?}: {few} and {many} bytes");
    }
}
