//! The graph of calls between functions, from branch records (LBR), as a table.

use crate::events::id_suffixes;
use crate::labels::{Input, Labels};
use crate::locations::NamedRows;
use crate::profile_facts::profile_facts;
use dioptra_profile::branches::{BranchAnalysis, Executions, Share, SymbolCode};
use dioptra_profile::{Dimension, FrameId, FunctionId, Names, Profile, TreeDirection, TreeLimits};
use dioptra_symbols::{SymbolOptions, Symbolizer};
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Severity, Table, TableError, Unit};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The options of a graph of calls.
#[derive(Clone, Debug)]
pub struct CallGraphOptions {
    /// Whether the callers or the callees of a function stand below it.
    pub direction: TreeDirection,
    /// The event whose branch records are read, as an index of [`Profile::events`].
    pub event: usize,
    /// The least share of all calls that a row has, and the most rows below a function.
    pub limits: TreeLimits,
    /// The options for reading the code, which shows whether a branch is a call or a jump.
    pub symbols: SymbolOptions,
}

/// The calls between two functions, or all of one.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: Executions,
    /// The number of records that say whether the branch was predicted.
    told: u64,
    /// The number of records whose branch was mispredicted.
    mispredicted: u64,
}

impl Sum {
    fn add(&mut self, count: Executions, mispredicted: Option<Share>) {
        self.count = self.count.plus(count);
        if let Some(share) = mispredicted {
            self.told += share.whole;
            self.mispredicted += share.part;
        }
    }

    fn plus(&mut self, other: &Sum) {
        self.count = self.count.plus(other.count);
        self.told += other.told;
        self.mispredicted += other.mispredicted;
    }
}

/// Returns whether [`call_graph`] has anything to show of an event: it recorded branches, and not only the open
/// calls.
pub fn has_calls(profile: &Profile, event: usize) -> bool {
    profile.branches(event).is_some()
}

/// Builds the graph of calls in an event's branch records. A row is a function that was called (or, for callees, that
/// called), and the rows below it are the functions that called it (or that it called). A tail call is a call by the
/// function that jumped. Where only returns were recorded, each return stands for the call that it ends.
///
/// Columns: `calls_percent`, the share of all calls; `calls`, the number of branch records; `calls_estimated`, the
/// number of calls that they stand for, with its standard error, where the event counts taken branches or records
/// hold cycles; `mispredicted_percent`; then the names of functions, as [`crate::report()`] has them.
///
/// There are no deeper rows, which would be guesses: a record shows one call, and not who called its caller.
///
/// # Errors
/// [`TableError`] if there are more rows than fit.
pub fn call_graph(
    profile: &Profile,
    names: &Names,
    options: &CallGraphOptions,
) -> Result<Table, TableError> {
    let mut symbols = options.symbols.clone();
    symbols
        .recorded_kernel
        .get_or_insert_with(|| profile.recorded_kernel().clone());
    let symbolizer = Symbolizer::new(symbols);
    let code = SymbolCode::new(profile.modules(), &symbolizer);
    let analysis = BranchAnalysis::new(profile, options.event, &code);
    let calls = analysis
        .map(|analysis| analysis.calls())
        .unwrap_or_default();
    // The sums by caller and callee.
    let mut edges: BTreeMap<(FunctionId, FunctionId), Sum> = BTreeMap::new();
    let function = |frame: FrameId| names.of_frame(frame);
    let of_returns = calls.calls.is_empty();
    for call in &calls.calls {
        let edge = (function(call.site), function(call.target));
        let sum = edges.entry(edge).or_default();
        sum.add(call.count, call.mispredicted);
    }
    for back in calls.returns.iter().filter(|_| of_returns) {
        let edge = (function(back.to), function(back.from));
        let sum = edges.entry(edge).or_default();
        sum.add(back.count, back.mispredicted);
    }
    let mut tops: BTreeMap<FunctionId, (Sum, Vec<(FunctionId, Sum)>)> = BTreeMap::new();
    let mut all = Sum::default();
    for ((caller, callee), sum) in &edges {
        let (top, below) = match options.direction {
            TreeDirection::Callers => (callee, caller),
            TreeDirection::Callees => (caller, callee),
        };
        let (of_top, rows) = tops.entry(*top).or_default();
        of_top.plus(sum);
        rows.push((*below, *sum));
        all.plus(sum);
    }
    let input = Input {
        profile,
        names,
        blocks: None,
        shapes: None,
        label: "",
    };
    let inputs = [input];
    let number_of = |_, module| module as usize;
    let mut rows = NamedRows::new(&inputs, &number_of);
    for function in edges.keys().flat_map(|(caller, callee)| [caller, callee]) {
        rows.add(0, Dimension::Function, *function);
    }
    let labels = Labels::of_functions(names.has_inlined(), rows.locations());
    let event = profile.events()[options.event].name();
    let mut heads = heads(event, &all);
    heads.extend(labels.all_heads(Dimension::Function));
    let mut table = Table::new(heads);
    let least = |sum: &Sum| {
        // `least` is in hundredths of a percent, so it is 10,000 at most.
        u128::from(sum.count.seen) * 10_000
            >= u128::from(all.count.seen) * u128::from(options.limits.least)
    };
    let mut left_out = 0_usize;
    let mut tops: Vec<_> = tops.into_iter().collect();
    tops.sort_by_key(|(function, (sum, _))| (Reverse(sum.count.seen), *function));
    let mut push = |parent, function, sum: &Sum| {
        let (mut cells, mut notes) = (Vec::new(), Vec::new());
        push_numbers(sum, &all, &mut cells, &mut notes);
        labels.push_all_cells(&input, 0, Dimension::Function, function, &mut cells);
        table.push_noted(parent, cells, notes)
    };
    for (function, (sum, mut rows)) in tops {
        if !least(&sum) {
            left_out += 1 + rows.len();
            continue;
        }
        let id = push(None, function, &sum)?;
        rows.sort_by_key(|(function, sum)| (Reverse(sum.count.seen), *function));
        for (number, (function, sum)) in rows.iter().enumerate() {
            if number >= options.limits.width || !least(sum) {
                left_out += 1;
                continue;
            }
            push(Some(id), *function, sum)?;
        }
    }
    // The graph needs no call chains, so their absence is no fact about it.
    let facts = profile_facts(profile, names, &[options.event]);
    for fact in facts.iter().filter(|fact| fact.id != "no_call_chains") {
        let (text, value) = (fact.text.clone(), fact.value.clone());
        table
            .facts
            .add(fact.severity, fact.id.as_str(), text, value);
    }
    let told = match of_returns {
        true => "returns, each for the call that it ends",
        false => "calls and tail calls",
    };
    table.facts.add(
        Severity::Info,
        "calls_of_branches",
        format!(
            "{} {told}, from branch records (LBR): below a function its {}, one level deep, since a record tells one call",
            all.count.seen,
            match options.direction {
                TreeDirection::Callers => "callers",
                TreeDirection::Callees => "callees",
            }
        ),
        json!({"calls": all.count.seen, "returns": of_returns}),
    );
    if calls.unknown > 0 {
        table.facts.add(
            Severity::Loss,
            "unknown_branches",
            format!(
                "{} branch records are of code that cannot be read here, so that nothing tells calls from jumps",
                calls.unknown
            ),
            calls.unknown,
        );
    }
    if left_out > 0 {
        table.facts.add(
            Severity::Info,
            "tree_rows_left_out",
            format!(
                "{left_out} row{} not shown: less than {} % of the calls, or beyond the limit of rows",
                if left_out == 1 { "" } else { "s" },
                f64::from(options.limits.least) / 100.0
            ),
            left_out,
        );
    }
    Ok(table)
}

fn heads(event: &str, all: &Sum) -> Vec<Column> {
    let suffix = id_suffixes(&[event]).concat();
    let head = |id: &str, name: &str, kind, unit| {
        Column::new(format!("{id}{suffix}"), name, kind, unit).of_event(event)
    };
    let calls = || Unit::Named("calls".to_owned());
    let mut heads = vec![
        head("calls_percent", "calls", ColumnKind::Ratio, Unit::Percent),
        head("calls", "records", ColumnKind::Count, calls()),
    ];
    if all.count.estimated.is_some() {
        heads.push(head(
            "calls_estimated",
            "estimated",
            ColumnKind::Count,
            calls(),
        ));
    }
    if all.told > 0 {
        let (id, name) = ("mispredicted_percent", "mispredicted");
        heads.push(head(id, name, ColumnKind::Ratio, Unit::Percent));
    }
    heads
}

fn push_numbers(sum: &Sum, all: &Sum, cells: &mut Vec<Cell<'_>>, notes: &mut Vec<CellNote>) {
    cells.extend([
        Cell::ratio(sum.count.seen, all.count.seen),
        Cell::Count(sum.count.seen),
    ]);
    if all.count.estimated.is_some() {
        notes.push(CellNote {
            column: cells.len(),
            standard_error: sum.count.estimated_error().filter(|error| *error > 0.0),
            mark: None,
        });
        let estimated = sum.count.estimated.map(Cell::real);
        cells.push(estimated.unwrap_or(Cell::Empty));
    }
    if all.told > 0 {
        cells.push(match sum.told {
            0 => Cell::Empty,
            told => Cell::ratio(sum.mispredicted, told),
        });
    }
}
