//! Evaluation allocates nothing, whatever the rules are.

use dioptra_filters::{
    Compiler, FunctionDescription, MatchStyle, PlanOptions, RuleOption, Rules, Sampler, Store,
    Tail, ThreadState, TraceSwitch,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn entering_and_leaving_calls_allocates_nothing() {
    let mut rules = Rules::new(MatchStyle::Regex);
    for (option, text) in [
        (
            RuleOption::Filter,
            "f0;f1@sample=3;f2@sample=1/5;f3@sample=p90;f4@depth=2,time=7ns",
        ),
        (
            RuleOption::Trigger,
            "f5@sample=p50;f6@sample=1000000/s;f7@size=50;f8@sample=auto",
        ),
        (RuleOption::Notrace, "f9"),
        (RuleOption::Caller, "f1;f2;f3;f8"),
        (RuleOption::Time, "20ns"),
        (RuleOption::Depth, "30"),
    ] {
        rules.add(option, text).expect("rules");
    }
    let mut compiler = Compiler::new(rules, PlanOptions::default()).expect("a compiler");
    for id in 0..12 {
        let name = format!("f{id}");
        compiler.add(&FunctionDescription {
            name: &name,
            size: Some(10 * id),
            ..FunctionDescription::default()
        });
    }
    let plan = compiler.plan();
    let mut samplers = vec![Sampler::default(); plan.sampler_count()];
    let mut tails = vec![Tail::default(); plan.tail_count()];
    let mut state = ThreadState::new(&plan, 1);
    let mut store = Store {
        samplers: &mut samplers,
        tails: &mut tails,
    };
    let mut stack = Vec::with_capacity(64);
    let mut verdicts = [0_u64; 4];

    let before = ALLOCATIONS.get();
    let (mut time, mut random) = (0_u64, 1_u64);
    for _ in 0..100_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        time += random >> 60;
        let id = (random >> 33) as u32 % 12;
        if stack.len() < 60 && random >> 62 != 0 {
            let action = plan.action_of(id);
            let entry = state.enter(&plan, &mut store, action, TraceSwitch::On, || time);
            stack.push(entry.frame);
        } else {
            while stack.len() > id as usize {
                let frame = stack.pop().expect("a frame");
                let exit = state.exit(&plan, &mut store, &frame, || time);
                verdicts[match exit.verdict {
                    dioptra_filters::ExitVerdict::Hidden => 0,
                    dioptra_filters::ExitVerdict::Keep => 1,
                    dioptra_filters::ExitVerdict::KeepForDescendants => 2,
                    dioptra_filters::ExitVerdict::Discard(_) => 3,
                }] += 1;
            }
        }
    }
    let after = ALLOCATIONS.get();
    assert_eq!(after, before);
    // The rules did something.
    assert!(verdicts.iter().all(|count| *count > 100), "{verdicts:?}");
}
