//! Filters, triggers and sampling: which calls of a traced program are shown.
//!
//! Texts of options become [`Rules`]; a [`Compiler`] matches them with functions and makes a plan, an array of words
//! that may lie in shared memory ([`Plan::from_words`]). A thread's position is a [`ThreadState`]: it is asked at each
//! call's entry and exit, allocates nothing and cannot fail. Recording and reading a trace use the same three, so a rule
//! means the same in both. Readers use [`Lane`], which gives out the shown calls in order. A tracer asks
//! [`Plan::site_need`] for the least that a function's probe site must do.
//!
//! Without the feature `std` there is only the evaluation, `no_std` and without `alloc`.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use dioptra_filters::{Compiler, Event, Function, Lane, MatchStyle, Plan, PlanOptions, RuleOption, Rules, Switch};
//!
//! let mut rules = Rules::new(MatchStyle::Regex);
//! rules.add(RuleOption::Filter, "main;^parse_@sample=2")?;
//! let mut compiler = Compiler::new(rules, PlanOptions::default())?;
//! for name in ["main", "parse_line"] {
//!     compiler.add(&Function { name, ..Function::default() });
//! }
//! let words = compiler.plan();
//! let plan = Plan::from_words(&words)?;
//! let mut lane = Lane::new(&plan, 0);
//! let mut shown = Vec::new();
//! let mut tell = |event| if let Event::Enter { call, time, .. } = event { shown.push((call, time)) };
//! lane.enter(&plan, plan.action_of(0), Switch::On, "main", 1, &mut tell);
//! for time in [10, 20, 30, 40] {
//!     lane.enter(&plan, plan.action_of(1), Switch::On, "parse_line", time, &mut tell);
//!     lane.exit(&plan, time + 5, &mut tell);
//! }
//! lane.exit(&plan, 50, &mut tell);
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
//!   `-F f@A` is `-T f@filter,A`, and likewise `-N` notrace, `-C` caller, `-H` hide.
//! - All rules that match a function hold together; where two contradict each other, the later one does.
//! - An error ([`SyntaxError`]) shows the text and the place. Rules that match nothing are [`Warning`]s with the nearest
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
//!    the call and what it calls. `trace_on`, `trace_off` and `finish` switch the process ([`Effects`]) and hold for the
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
//!   function's own call comes and goes, and what it calls stays.
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
//! - [`Sampler::seen`] and [`Sampler::shown`] scale sums back ([`Scaled`], [`Lane::scaled`]). [`Entry::stands_for`] does it
//!   call by call while the numbers are not known yet: the executions since the last shown one, so that nothing stands for
//!   those behind the last one. A rate and a tail choose by time and by duration: their seen executions are
//!   exact, sums over their shown ones are not representative.
//!
//! # Sampling while a program runs
//!
//! A tracer that knows of each call whether it is hidden by its place (in a hidden subtree, outside of filters, too deep) can
//! leave out executions that are not chosen. It asks [`Rules::beyond_counting`] whether the rules permit it,
//! [`Plan::counted`] for the functions, and counts in [`Sampler`]s. Who reads what was recorded so says of these functions
//! that they are chosen ([`Function::is_chosen`]), and applies the same rules: what is shown is the same. A forked child counts
//! from the beginning, also within what its parent has chosen.
//!
//! Executions of a filter with `pNN` ([`Plan::judged`]) it judges at their ends, by [`Tail`]: it takes back what it recorded of
//! those that were not slow, or, where that is out of reach, marks them for readers ([`Lane::discard`]). What is open when a
//! thread's records end is kept, also by readers. Of a trigger with `pNN` the calls below stay: it is left to readers.
//!
//! This crate knows nothing of where calls come from and how they are stored.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "std", test))]
extern crate std;

mod answer;
#[cfg(feature = "std")]
mod auto;
#[cfg(feature = "std")]
mod compile;
#[cfg(feature = "std")]
mod lane;
mod plan;
mod random;
#[cfg(feature = "std")]
mod rules;
mod sampler;
#[cfg(feature = "std")]
mod scale;
mod site;
mod state;
mod tail;

pub use answer::{Effects, Entry, Exit, Frame, Scope, Show, Switch, Verdict};
#[cfg(feature = "std")]
pub use auto::{Controller, Spent};
#[cfg(feature = "std")]
pub use compile::{CompileError, Compiler, Function, FunctionKind, PlanOptions, Warning};
#[cfg(feature = "std")]
pub use lane::{Event, Lane};
pub use plan::{Plan, PlanError, SampleKind, Sampling};
pub use random::{Pace, thread_seed};
#[cfg(feature = "std")]
pub use rules::{
    COLORS, Condition, MatchStyle, NameForms, RuleOption, Rules, Sample, SyntaxError, UnitError,
    is_cpp, parse_bool, parse_share, parse_size, parse_time, qualified_name, simple_name,
};
pub use sampler::Sampler;
#[cfg(feature = "std")]
pub use scale::{Estimate, Scaled};
pub use site::{Gate, SiteNeed};
pub use state::{Store, ThreadState};
pub use tail::{Moves, Tail};
