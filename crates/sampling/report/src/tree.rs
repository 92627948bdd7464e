//! A profile's call tree as a table.

use crate::columns::{EventColumns, NumberOptions};
use crate::events::id_suffixes;
use crate::labels::{Input, Labels};
use crate::locations::NamedRows;
use crate::profile_facts::profile_facts;
use dioptra_profile::{Dimension, Names, Profile, TreeDirection, TreeLimits, call_tree};
use dioptra_tables::{Cell, Severity, Table, TableError};

/// The options of a call tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// Whether the callers or the callees of a function stand below it.
    pub direction: TreeDirection,
    /// The limits on the rows that are shown.
    pub limits: TreeLimits,
    /// The events, as indices of [`Profile::events`]; `None` for all that sampled.
    pub events: Option<Vec<usize>>,
}

/// Builds the call tree of `profile`, which must have been loaded with call chains, as a table whose rows have parents.
///
/// Columns are the columns of [`crate::by()`] with children, by function. In a tree of callees a row's total is the
/// count of this path through the functions above it, and self the part of it in the function itself. In a tree of
/// callers a top row is a function with its self count, and the totals of the rows below say which callers these
/// samples have. Nameless addresses that follow each other in one module are one row, which says how many there are
/// at most.
///
/// # Errors
/// [`TableError`] if the table contradicts itself, which no profile leads to unless it has more rows than fit.
pub fn tree(profile: &Profile, names: &Names, options: &TreeOptions) -> Result<Table, TableError> {
    let mut events = options
        .events
        .clone()
        .unwrap_or_else(|| profile.sampled_events());
    events.retain(|index| *index < profile.events().len());
    let columns: Vec<EventColumns> = events
        .iter()
        .map(|index| {
            let event = &profile.events()[*index];
            EventColumns::new(event.name(), &[event], NumberOptions::plain(true))
        })
        .collect();
    let mut heads = Vec::new();
    let of_events = events.iter().map(|index| profile.events()[*index].name());
    let suffixes = id_suffixes(&of_events.collect::<Vec<_>>());
    for (place, (event, suffix)) in columns.iter().zip(&suffixes).enumerate() {
        event.push_heads(place, suffix, &mut heads);
    }
    let tree = call_tree(profile, names, &events, options.direction, options.limits);
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
    for row in &tree.rows {
        rows.add(0, Dimension::Function, row.function);
    }
    let labels = Labels::of_functions(names.has_inlined(), rows.locations());
    heads.extend(labels.all_heads(Dimension::Function));
    let mut table = Table::new(heads);
    let mut ids: Vec<u32> = Vec::with_capacity(tree.rows.len());
    for row in &tree.rows {
        let mut cells = Vec::with_capacity(table.columns.len());
        for (event, count) in columns.iter().zip(&row.counts) {
            event.push_cells(*count, &mut cells);
        }
        // The tree's functions are ids of these names.
        let function = &names.functions()[row.function as usize];
        let first = cells.len();
        labels.push_all_cells(&input, 0, Dimension::Function, row.function, &mut cells);
        let is_name = |cell: &&mut Cell<'_>| **cell == Cell::name(&*function.name);
        if row.frames > 1
            && let Some(name) = cells[first..].iter_mut().rfind(is_name)
        {
            *name = Cell::name(format!("{} (up to {} frames)", function.name, row.frames));
        }
        let parent = row.parent.and_then(|parent| ids.get(parent).copied());
        ids.push(table.push(parent, cells)?);
    }
    table.facts = profile_facts(profile, names, &events);
    if tree.left_out > 0 {
        table.facts.add(
            Severity::Info,
            "tree_rows_left_out",
            format!(
                "{} of the tree not shown: less than {} % of the weight, or beyond the limit of rows",
                if tree.left_out == 1 {
                    "1 row".to_owned()
                } else {
                    format!("{} rows", tree.left_out)
                },
                f64::from(options.limits.least) / 100.0
            ),
            tree.left_out,
        );
    }
    Ok(table)
}
