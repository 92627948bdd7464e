//! A profile's table by function, module, process or thread.

use crate::profile_facts::profile_facts;
use crate::{Cell, Column, ColumnKind, Direction, Table, TableError, Unit};
use dioptra_perfevents::{Attr, event_type};
use dioptra_profile::{
    AggregateRow, Dimension, EventProfile, FunctionName, Names, Profile, SelfAndTotal, UNKNOWN,
    aggregate,
};

/// Which table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByOptions {
    /// What a row is.
    pub by: Dimension,
    /// Whether to show totals beside self counts; needs a profile with call chains.
    pub children: bool,
    /// Which events, as indices of [`Profile::events`]; `None` for all that sampled.
    pub events: Option<Vec<usize>>,
}

/// Builds the table of `profile`, sorted by the first event's total or self share, largest first.
///
/// For each event there are the columns `total_percent` (with [`ByOptions::children`]), `self_percent`, `samples` and
/// `weight`; with several events the second one's end in `_2`, and so on. Then come the names: `module`, `function`,
/// `pid`, `process`, `tid`, `thread`, `cpu`, `address` (relative to the module), `file`, `line`, as the dimension asks; where
/// inlined functions are known, `inlined` tells which rows are theirs.
///
/// # Errors
/// [`TableError`] if the table contradicts itself, which no profile leads to unless it has more rows than fit.
pub fn by(profile: &Profile, names: &Names, options: &ByOptions) -> Result<Table, TableError> {
    let events = options
        .events
        .clone()
        .unwrap_or_else(|| profile.sampled_events());
    let events: Vec<usize> = events
        .into_iter()
        .filter(|index| *index < profile.events().len())
        .collect();
    let columns: Vec<EventColumns> = events
        .iter()
        .map(|index| EventColumns::new(&profile.events()[*index], options.children))
        .collect();
    let mut heads = Vec::new();
    for (place, event) in columns.iter().enumerate() {
        event.push_heads(place, &mut heads);
    }
    let numbers = heads.len();
    heads.extend(name_heads(options.by, names.has_inlined()));
    let mut table = Table::new(heads);
    for row in aggregate(profile, names, options.by, &events) {
        let mut cells = Vec::with_capacity(table.columns.len());
        for (event, count) in columns.iter().zip(&row.counts) {
            event.push_cells(*count, &mut cells);
        }
        push_names(profile, names, options.by, &row, &mut cells);
        table.push(None, cells)?;
    }
    // The last order decides first: names only among equals, earlier events before later ones.
    for column in (numbers..table.columns.len()).rev() {
        table.sort_by(column, Direction::Ascending)?;
    }
    for column in (0..numbers).rev() {
        if table.columns[column].unit == Unit::Percent {
            table.sort_by(column, Direction::Descending)?;
        }
    }
    table.facts = profile_facts(profile, names, &events);
    Ok(table)
}

/// The columns of one event.
pub(crate) struct EventColumns {
    name: String,
    weight: u64,
    weight_unit: Option<Unit>,
    children: bool,
}

impl EventColumns {
    pub(crate) fn new(event: &EventProfile, children: bool) -> Self {
        EventColumns {
            name: event.name().to_owned(),
            weight: event.total().weight,
            weight_unit: event.weighs_events().then(|| weight_unit(event.attr())),
            children,
        }
    }

    pub(crate) fn push_heads(&self, place: usize, heads: &mut Vec<Column>) {
        let mut push = |id: &str, name: &str, kind, unit| {
            let id = match place {
                0 => id.to_owned(),
                _ => format!("{id}_{}", place + 1),
            };
            heads.push(Column::new(id, name, kind, unit).of_event(&*self.name));
        };
        if self.children {
            push("total_percent", "total", ColumnKind::Ratio, Unit::Percent);
        }
        push("self_percent", "self", ColumnKind::Ratio, Unit::Percent);
        push("samples", "samples", ColumnKind::Count, Unit::Samples);
        if let Some(unit) = &self.weight_unit {
            let name = if *unit == Unit::Nanoseconds {
                "time"
            } else {
                "events"
            };
            push("weight", name, ColumnKind::Weight, unit.clone());
        }
    }

    pub(crate) fn push_cells(&self, count: SelfAndTotal, cells: &mut Vec<Cell>) {
        if self.children {
            cells.push(Cell::ratio(count.total.weight, self.weight));
        }
        cells.push(Cell::ratio(count.own.weight, self.weight));
        cells.push(Cell::Count(count.own.samples));
        if self.weight_unit.is_some() {
            cells.push(Cell::Count(count.own.weight));
        }
    }
}

/// What an event's periods count.
pub(crate) fn weight_unit(attr: &Attr) -> Unit {
    /// `PERF_COUNT_SW_CPU_CLOCK` and `PERF_COUNT_SW_TASK_CLOCK` count nanoseconds.
    const CLOCKS: [u64; 2] = [0, 1];
    if attr.kind == event_type::SOFTWARE && CLOCKS.contains(&attr.config) {
        Unit::Nanoseconds
    } else {
        Unit::Events
    }
}

/// The columns that name a function: with inlined functions one more tells which ones are.
pub(crate) fn function_heads(has_inlined: bool) -> &'static [&'static str] {
    if has_inlined {
        &["module", "inlined", "function"]
    } else {
        &["module", "function"]
    }
}

/// The cell that tells whether a function's row is of its code inside of others.
pub(crate) fn inlined_cell(function: &FunctionName) -> Cell {
    if function.is_inlined {
        Cell::name("inlined")
    } else {
        Cell::Empty
    }
}

fn name_heads(by: Dimension, has_inlined: bool) -> Vec<Column> {
    let names: &[&str] = match by {
        Dimension::Function => function_heads(has_inlined),
        Dimension::Module => &["module"],
        Dimension::Process => &["pid", "process"],
        Dimension::Thread => &["pid", "tid", "thread"],
        Dimension::Cpu => &["cpu"],
        Dimension::Address => &["module", "address", "function"],
        Dimension::Line | Dimension::OutermostLine => &["module", "file", "line"],
        // The rest of a list that may grow has at least its key to show.
        _ => &["key"],
    };
    names
        .iter()
        .map(|name| {
            let kind = match *name {
                "address" => ColumnKind::Address,
                _ => ColumnKind::Name,
            };
            Column::new(*name, *name, kind, Unit::None)
        })
        .collect()
}

fn push_names(
    profile: &Profile,
    names: &Names,
    by: Dimension,
    row: &AggregateRow,
    cells: &mut Vec<Cell>,
) {
    let key = row.key as usize;
    let module = |id| Cell::name(profile.modules().get(id).label.as_str());
    let number = |number: Option<u32>| number.map_or(Cell::Empty, |id| Cell::Count(id.into()));
    let tasks = profile.tasks();
    match by {
        Dimension::Function => {
            if let Some(function) = names.functions().get(key) {
                cells.push(module(function.module));
                if names.has_inlined() {
                    cells.push(inlined_cell(function));
                }
                cells.push(Cell::name(function.name.as_str()));
            }
        }
        Dimension::Module => cells.push(module(row.key)),
        Dimension::Process => {
            cells.push(number(
                tasks.processes().get(key).map(|process| process.pid),
            ));
            cells.push(Cell::name(tasks.process_name(row.key)));
        }
        Dimension::Thread => {
            let thread = tasks.threads().get(key);
            let process = thread.and_then(|thread| tasks.processes().get(thread.process as usize));
            cells.push(number(process.map(|process| process.pid)));
            cells.push(number(thread.map(|thread| thread.tid)));
            cells.push(Cell::name(tasks.thread_name(row.key)));
        }
        Dimension::Cpu => cells.push(number(Some(row.key).filter(|cpu| *cpu != u32::MAX))),
        Dimension::Address => {
            let frame = profile.frames().get(row.key);
            cells.push(module(frame.module));
            cells.push(Cell::Address(frame.address));
            let function = names.functions().get(names.of_frame(row.key) as usize);
            cells.push(function.map_or(Cell::Empty, |function| Cell::name(&*function.name)));
        }
        Dimension::Line | Dimension::OutermostLine => {
            if let Some(line) = names.lines().get(key) {
                cells.push(module(line.module));
                cells.push(match &line.file {
                    Some(file) => Cell::name(&**file),
                    None => Cell::name(UNKNOWN),
                });
                cells.push(number(line.line));
            }
        }
        _ => cells.push(Cell::Count(row.key.into())),
    }
}
