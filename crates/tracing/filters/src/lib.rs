//! Filters, triggers and sampling: which calls of a traced program are shown.
//!
//! The texts of options become [`Rules`]. A [`Compiler`] matches the rules with functions and makes a [`Plan`].
//! Recording and reading a trace use the same plan, so a rule means the same in both.
//!
//! ```text
//! texts ─▶ Rules ─▶ Compiler ─▶ Plan ─▶ Lane ─▶ shown calls     (readers)
//!                functions ─┘      └──▶ Probe ─▶ hooks          (recorders)
//! ```
//!
//! Readers use [`Lane`], which gives out the shown calls in order. A recorder asks [`Plan::probe`] for the least that a
//! function's probe site must do.
//!
//! Without the feature `std` there are only the counters that a traced program updates ([`Sampler`], [`Tail`]),
//! `no_std` and without `alloc`.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use dioptra_filters::{Compiler, Event, FunctionDescription, Lane, MatchStyle, PlanOptions, RuleOption, Rules, TraceSwitch};
//!
//! let mut rules = Rules::new(MatchStyle::Regex);
//! rules.add(RuleOption::Filter, "main;^parse_@sample=2")?;
//! let mut compiler = Compiler::new(rules, PlanOptions::default())?;
//! for name in ["main", "parse_line"] {
//!     compiler.add(&FunctionDescription { name, ..FunctionDescription::default() });
//! }
//! let plan = compiler.plan();
//! let mut lane = Lane::new(&plan, 0);
//! let mut shown = Vec::new();
//! let mut give = |event| if let Event::Enter { call, time, .. } = event { shown.push((call, time)) };
//! lane.enter(&plan, plan.action_of(0), TraceSwitch::On, "main", 1, &mut give);
//! for time in [10, 20, 30, 40] {
//!     lane.enter(&plan, plan.action_of(1), TraceSwitch::On, "parse_line", time, &mut give);
//!     lane.exit(&plan, time + 5, &mut give);
//! }
//! lane.exit(&plan, 50, &mut give);
//! assert_eq!(shown, [("main", 1), ("parse_line", 20), ("parse_line", 40)]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Texts
//!
//! | option | text |
//! |---|---|
//! | `-F` `-N` `-C` `-H` | `FUNCTION[@MODULE][@ACTION,…]`; joined by `;` or repeated; `-F !f` is `-N f` |
//! | `-T` | `FUNCTION[@MODULE]@ACTION,…` |
//! | `-A` `-R` | `FUNCTION[@MODULE]@VALUE,…`: values that are recorded with calls; `-R f` is `-R f@retval` |
//! | `-D` `-t` `-Z` | a number; a time (`1500us`, `1.5ms`); a size (`4k`). The last one counts |
//! | `-L` | a source file or folder, or a pattern for paths; `!PATH` and `PATH@hide` hide it |
//!
//! - A C++ function has several names: the full one (`int ns::f<int>(int)`), the qualified one (`ns::f<int>`), the
//!   simple one, which is shown (`ns::f`), and that of the symbol table. A text that fits one of them fits the function.
//! - A text without any of `.?*+-^$|()[]{}` is a name. Others are patterns, for all names but that of the symbol table:
//!   regular expressions that match anywhere, or a shell's (`--match=glob`) over the whole name. `operator…` is always a
//!   name, and so is everything with `--match=simple`; a regular expression also matches the name that is spelled like it.
//! - `MODULE` is the beginning of a file's name, a path, `PLT` (library calls) or `kernel`. A word near to an action is
//!   an error, not a module.
//! - Actions: `filter`, `notrace`, `hide`, `caller`, `depth=N`, `time=T`, `size=N`, `trace`, `trace_on`, `trace_off`,
//!   `finish`, `backtrace`, `color=C`, `sample=S`, `if:argN==V`, and `recover`, which has no effect ([`Rules::notes`]).
//!   Values are actions, too: `argN`, `fpargN` and `retval`, each perhaps with `/` and a [form](ValueFormat).
//!   `-F f@A` is `-T f@filter,A`, and likewise `-N` notrace, `-C` caller, `-H` hide.
//! - All rules that match a function hold together; where two contradict each other, the later one does.
//! - An error ([`SyntaxError`]) shows the text and the position. Rules that match nothing are [`Warning`]s with the nearest
//!   names. A filter that matches nothing shows nothing: the functions may come with a module that is loaded later.
//!
//! # Meaning
//!
//! A call passes these steps in this order; each thread has a state of its own.
//!
//! 1. In a subtree hidden by `notrace`, a call is not shown and nothing happens.
//! 2. `notrace` hides the call and its subtree. If any rule is a filter, calls outside of all filtered ones are not
//!    shown and nothing happens at them.
//! 3. `filter` begins a new depth at 0, `depth=N` also a new limit, until the call ends. `time=` and `size=` hold for
//!    the call and the calls below it. `trace_on`, `trace_off` and `finish` switch the process ([`Effects`]) and hold for the
//!    call itself.
//! 4. A call is in view if tracing is on, its function is not hidden (`hide`, `-L`) or too small (`-Z`, `size=`), and
//!    the depth is not reached. A call that is not in view takes no level: depth counts what is shown around a call.
//!    The other actions of a rule happen whether the call is in view or not.
//! 5. `sample=` chooses among the calls in view.
//! 6. A call in view is shown for its own sake if it took at least the minimum duration and, with `-C`, its function has
//!    `caller`; or if it has `trace`. It is also shown if a call below it is shown.
//!
//! Where uftrace does otherwise:
//!
//! - `-t T` keeps calls of T and longer, at recording and at reading; calls without a duration are kept without `-t`.
//! - A call that is shown at its entry ends at its exit, also if tracing was switched off in between; one that began
//!   while tracing was off is never shown itself. Trees are always balanced.
//! - With `-C`, a call beyond the depth is not shown, so it is no reason to show the calls around it.
//! - `finish` holds at reading, too.
//! - Functions hidden by `-L` and `-Z` can still be filters and triggers, as with `-H`.
//! - `-H` works at recording, too, and costs nothing there.
//! - A condition that cannot be checked is an error, not true.
//! - `depth=0` and `-D 0` are errors, and so are contradictions and actions without a meaning (`-N f@depth=2`).
//! - Times have any number of digits.
//!
//! # Sampling
//!
//! | text | shown executions |
//! |---|---|
//! | `sample=N` | the N-th, the 2N-th and so on |
//! | `sample=1/N`, `P%` | each with this probability: a seeded choice that does not fall into step with the program |
//! | `sample=N/s` | the first in each N-th of a second; an idle time is not made up for |
//! | `sample=auto` | at random, at a pace that a [`Controller`] keeps within a budget |
//! | `sample=pNN` | those slower than the running percentile of those before, judged at their end; at first, the slowest so far |
//!
//! - With `filter` (`-F f@sample=2`) the execution is shown or hidden with its subtree. Without (`-T f@sample=2`) the
//!   function's own call comes and goes, and the calls below it stay.
//! - Executions are counted by function, not by pattern, and by thread: [`Sampler`]. Counted is what would be shown
//!   without sampling: not in hidden subtrees, outside of filters, beyond the depth, or while tracing is off. Durations
//!   and callers are not known at the entry: they are judged after sampling. A filter's call counts even if it is itself
//!   hidden (`-H`, `-L`, `-Z`), for the sake of its subtree.
//! - Within a chosen execution of a filter, recursion belongs to the subtree and is not counted; within one that is not
//!   chosen, it is hidden and not counted either. So of a recursive function with `-F f@sample=1000`, the 1000th call from
//!   outside is the first that is shown. A trigger counts each call: `-T f@sample=1000` is what thins out recursion.
//! - `sample=1` shows all, `sample=0` is an error.
//! - Other actions of a sampled rule happen at its chosen executions only. A filter's execution that began while tracing
//!   was off is neither counted nor hidden: what is switched on within it is shown.
//! - Random choices follow from a seed, the number of the thread, and the function's place among the sampled ones: the same
//!   seed repeats them, as far as threads begin in the same order.
//! - [`Sampler::seen`] and [`Sampler::shown`] scale sums back ([`Lane::scaled`]). While these numbers are not known yet, a
//!   shown execution stands for those since the last shown one, so that nothing stands for those behind the last one. A rate and a tail choose by time and by duration: their seen executions are
//!   exact, sums over their shown ones are not representative.
//!
//! # Sampling while a program runs
//!
//! A recorder can leave out executions that are not chosen if its probe sites know whether a call is hidden by its
//! position: in a hidden subtree, outside of filters, or too deep. It asks [`Rules::beyond_counting`] whether the rules
//! permit it and [`Plan::probe`] for the functions, and counts in [`Sampler`]s. A reader of the trace marks these
//! functions as chosen ([`Function::is_chosen`]) and applies the same rules, so it shows the same calls. A forked child
//! counts from the beginning, also within executions that its parent has chosen.
//!
//! The recorder judges executions of a filter with `pNN` ([`Probe::JudgeFilter`]) at their ends, by [`Tail`]. It takes back the
//! records of those that were not slow. Where that is impossible, it marks them for readers ([`Lane::discard`]). An
//! execution that is open when a thread's records end is kept, also by readers. Executions of a trigger with `pNN` are
//! left to readers, because the calls below them stay.
//!
//! This crate does not know where calls come from and how they are stored.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(feature = "std")]
mod auto;
#[cfg(feature = "std")]
mod compile;
#[cfg(feature = "std")]
mod effects;
#[cfg(feature = "std")]
mod lane;
#[cfg(feature = "std")]
mod plan;
#[cfg(feature = "std")]
mod probe;
mod random;
#[cfg(feature = "std")]
mod rules;
mod sampler;
#[cfg(feature = "std")]
mod state;
mod tail;

#[cfg(feature = "std")]
pub use auto::{Controller, Spent};
#[cfg(feature = "std")]
pub use compile::{
    CompileError, Compiler, FunctionDescription, FunctionOrigin, PlanOptions, Warning,
};
#[cfg(feature = "std")]
pub use effects::{Effects, TraceSwitch};
#[cfg(feature = "std")]
pub use lane::{Event, Lane};
#[cfg(feature = "std")]
pub use plan::Plan;
#[cfg(feature = "std")]
pub use probe::Probe;
pub use random::{Pace, thread_seed};
#[cfg(feature = "std")]
pub use rules::{
    ArgumentCondition, COLORS, MOST_ARGUMENTS, MatchStyle, NameForms, RuleOption, Rules,
    SampleRule, SyntaxError, UnitError, ValueFormat, ValuePlace, ValueRequest, is_cpp, parse_bool,
    parse_share, parse_size, parse_time, qualified_name, simple_name,
};
pub use sampler::{SampleKind, Sampler, Sampling};
pub use tail::{Moves, Tail};
