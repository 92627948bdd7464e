//! Tables of one profile, or of the sum of several: rows of one dimension, or of several as levels of a tree.

use crate::columns::{Context, EventColumns, NumberOptions};
use crate::derived::Derived;
use crate::events::{id_suffixes, paired_facts};
use crate::grid::{Grid, GridOptions, GridRow, Match, Measure};
use crate::labels::{Labels, word};
use crate::match_facts::match_facts;
use crate::profile_facts::{block_facts, facts_of_shares, multiplex_facts};
use crate::row_key::RowKey;
use crate::set_aside::events_of_windows;
use crate::working_set::WorkingSet;
use crate::{Input, MetricColumns, PercentOf, ReportError, ShownNumbers, TableEvent};
use dioptra_profile::{Dimension, EventProfile, Names, Profile, Slices};
use dioptra_tables::{
    Cell, Column, ColumnKind, Direction, Facts, Mark, Severity, Table, TableError, Unit,
};
use serde_json::json;
use std::num::NonZeroU32;

/// The options of a table of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByOptions {
    /// The dimension of rows.
    pub by: Dimension,
    /// Whether to show totals beside self counts; needs a profile with call chains.
    pub children: bool,
    /// The events, as indices of [`Profile::events`]; `None` for all that sampled.
    pub events: Option<Vec<usize>>,
}

/// The options of a table of one profile or several.
#[derive(Clone, Debug)]
pub struct ReportOptions<'a> {
    /// The dimensions of rows; several are levels, the first one outermost.
    pub by: &'a [Dimension],
    /// Whether to show totals beside self counts; needs profiles with call chains.
    pub children: bool,
    /// The events that have columns.
    pub events: &'a [TableEvent],
    /// The columns that events have.
    pub shown: ShownNumbers,
    /// The whole that percentages are of.
    pub percent_of: PercentOf,
    /// Whether cells have standard errors. The errors use each sample's weight if the profiles keep it
    /// ([`dioptra_profile::LoadPlan::errors`]).
    pub errors: bool,
    /// The number of samples below which values are marked, where errors are shown or percentages are of a row or
    /// parent.
    pub few: u64,
    /// Derived columns.
    pub metrics: &'a [MetricColumns<'a>],
    /// The slices into which [`Dimension::Time`] is cut.
    pub slices: Slices,
    /// Whether rows have their instruction working set; of one profile only. Branch records are used where the
    /// profile has any ([`dioptra_profile::LoadPlan::branches`]).
    pub working_set: bool,
}

impl Default for ReportOptions<'_> {
    /// Returns the options of a table of functions without any event.
    fn default() -> Self {
        ReportOptions {
            by: &[Dimension::Function],
            children: false,
            events: &[],
            shown: ShownNumbers::default(),
            percent_of: PercentOf::Column,
            errors: false,
            few: 10,
            metrics: &[],
            slices: Slices::Number(const { NonZeroU32::new(20).unwrap() }),
            working_set: false,
        }
    }
}

/// Builds the table of `profile`, sorted by the first event's total or self share, largest first.
///
/// For each event there are the columns `total_percent` (with [`ByOptions::children`]), `self_percent`, `samples` and
/// `weight`, and where counters took turns `scaled_percent` and `scaled`; with several events their ids end in the
/// event, as `samples[page-faults]`. Then come the names, as the dimension asks: see [`report`].
///
/// # Errors
/// [`TableError`] if the table contradicts itself, which no profile leads to unless it has more rows than fit.
pub fn by(profile: &Profile, names: &Names, options: &ByOptions) -> Result<Table, ReportError> {
    let input = Input {
        profile,
        names,
        blocks: None,
        shapes: None,
        label: "",
    };
    let mut events = TableEvent::all(&[profile]);
    if let Some(wanted) = &options.events {
        events = wanted
            .iter()
            .filter_map(|index| {
                Some(TableEvent {
                    name: profile.events().get(*index)?.name().to_owned(),
                    of: vec![Some(*index)],
                })
            })
            .collect();
    }
    report(
        &[input],
        &ReportOptions {
            by: &[options.by],
            children: options.children,
            events: &events,
            ..ReportOptions::default()
        },
    )
}

/// Builds the table of the sum of `inputs`. Rows with the same names are one row: modules with the same build id,
/// else the same path; processes and threads with the same numbers and name.
///
/// With several events, the ids of an event's columns end in the event, as `samples[page-faults]`.
///
/// After the columns of each event (see [`by()`]) come the derived ones, then the names: `module`, `function`, `pid`,
/// `process`, `tid`, `thread`, `cpu`, `address` (relative to the module), `file`, `line`, …, as the dimension asks.
/// Where inlined functions are known, `inlined` marks their rows. Where rows have the same names, `location` tells
/// them apart: a function's source file or address, a module's path or build id. Programs read a key that no two rows
/// share: `module_id`, the module's build id or path, and for functions `function_address`, their first address.
///
/// With [`ReportOptions::working_set`] there are `code_lines` and `code_pages` behind the derived columns: the distinct
/// cache lines of 64 bytes and pages of 4 KiB of code in which the row's own samples lie. Rows of functions and modules
/// count the code between branch records, too.
///
/// With several dimensions rows have parents, and a row's own counts are the sum of the counts of the rows below.
/// Then `name` names a row, `level` is the word for its dimension, and the other names, which only programs read,
/// name the row and the rows above it. Rows are sorted by their share, largest first, slices of time by their start.
///
/// # Errors
/// [`ReportError`] if the profiles were not loaded with what a dimension needs, or the table has more rows than fit.
pub fn report(inputs: &[Input<'_>], options: &ReportOptions<'_>) -> Result<Table, ReportError> {
    keyed(inputs, options, false).map(|(table, _)| table)
}

/// As [`report`], with the key of each row, by the row's id. Without [`ReportOptions::children`] no row stands for places
/// that only called others, even if the profiles hold call chains.
///
/// # Errors
/// As [`report`].
pub fn report_with_keys(
    inputs: &[Input<'_>],
    options: &ReportOptions<'_>,
) -> Result<(Table, Vec<RowKey>), ReportError> {
    keyed(inputs, options, !options.children)
}

fn keyed(
    inputs: &[Input<'_>],
    options: &ReportOptions<'_>,
    counted_only: bool,
) -> Result<(Table, Vec<RowKey>), ReportError> {
    let mut labels = Labels::new(inputs, options.by, options.slices, false);
    let (derived, counted) = Derived::all(options.metrics, inputs, options.events);
    let grid = Grid::new(
        inputs,
        &labels,
        &GridOptions {
            levels: options.by,
            events: &counted,
            children: options.children,
            counted_only,
            estimates: options.errors
                || !options.metrics.is_empty()
                || is_scaled(inputs, options.events),
            apart: false,
            matching: Match::Equal,
        },
    )?;
    labels.locate(inputs, &grid, options.by);
    let number_options = NumberOptions {
        children: options.children,
        shown: options.shown,
        percent_of: options.percent_of,
        errors: options.errors,
        few: options.few,
    };
    let columns: Vec<EventColumns> = options
        .events
        .iter()
        .map(|event| EventColumns::new(&event.name, &events_of(event, inputs), number_options))
        .collect();
    let mut heads = Vec::new();
    let names: Vec<&str> = options.events.iter().map(|event| &*event.name).collect();
    let suffixes = id_suffixes(&names);
    for (place, (event, suffix)) in columns.iter().zip(&suffixes).enumerate() {
        event.push_heads(place, suffix, &mut heads);
    }
    let numbers = heads.len();
    derived
        .iter()
        .for_each(|derived| derived.push_heads(&mut heads));
    let working_set = match (options.working_set, inputs) {
        (true, [input]) => {
            let events: Vec<usize> = options
                .events
                .iter()
                .filter_map(|event| event.of[0])
                .collect();
            let slices = labels.slices;
            Some(WorkingSet::new(input, &grid, options.by, &events, slices)?)
        }
        _ => None,
    };
    if working_set.is_some() {
        for (id, name, unit) in [
            ("code_lines", "code lines", "lines"),
            ("code_pages", "code pages", "pages"),
        ] {
            let unit = Unit::Named(unit.to_owned());
            heads.push(Column::new(id, name, ColumnKind::Count, unit));
        }
    }
    let firsts = NameColumns::push_heads(&labels, options.by, &mut heads);
    let mut table = Table::new(heads);
    let shown = options.events.len();
    let totals = totals(&grid, counted.len());
    let mut evaluators: Vec<_> = derived
        .iter()
        .map(|derived| derived.evaluator(totals.get(shown..).unwrap_or_default()))
        .collect();
    table.reserve(grid.len());
    let (mut cells, mut notes, mut measures) = (Vec::new(), Vec::new(), Vec::new());
    let mut names = RowNames::default();
    for index in 0..grid.len() {
        let row = grid.row(index);
        cells.clear();
        notes.clear();
        measures.clear();
        measures.extend(grid.measures(index, 0));
        for (place, event) in columns.iter().enumerate() {
            let context = Context {
                first: (place > 0).then(|| measures[0]),
                above: row.parent.map(|parent| grid.measure(parent, 0, place)),
            };
            event.push(measures[place], context, &mut cells, &mut notes);
        }
        for (derived, evaluator) in derived.iter().zip(&mut evaluators) {
            let of_formulas = measures.get(shown..).unwrap_or_default();
            derived.push(evaluator, of_formulas, &mut cells, &mut notes);
        }
        if let Some(set) = &working_set {
            let size = set.rows[index];
            cells.extend([Cell::Count(size.lines), Cell::Count(size.pages)]);
        }
        firsts.find(&mut names, &labels, inputs, row);
        // A row's id is its index. The parent is in the table already, so its index fits.
        let parent = row.parent.map(|parent| parent as u32);
        table.push_repeating(parent, &cells, &names.cells, &notes)?;
    }
    match_facts(&mut table.facts, &grid.notes, inputs);
    let keys = (0..grid.len()).map(|index| RowKey::of(grid.row(index)));
    let keys: Vec<RowKey> = keys.collect();
    drop(grid);
    sort(
        &mut table,
        numbers,
        firsts.first,
        options.by.contains(&Dimension::Time),
    )?;
    for (input, place) in inputs.iter().zip(0..) {
        let several = inputs.len() > 1;
        let of_all = options.percent_of == PercentOf::Total;
        let facts = facts_of(input, place, options.events, several, of_all);
        table.facts.append(facts);
    }
    if inputs.len() > 1 {
        add_recorded_facts(&mut table.facts, options.events, inputs);
    }
    derived
        .iter()
        .for_each(|derived| derived.add_facts(&mut table.facts));
    if let Some(set) = &working_set {
        set.add_facts(&mut table.facts);
    }
    add_few(&mut table, options.few);
    Ok((table, keys))
}

/// Returns the profiles' events for which a table's event stands.
pub(crate) fn events_of<'a>(event: &TableEvent, inputs: &[Input<'a>]) -> Vec<&'a EventProfile> {
    let each = event.of.iter().zip(inputs);
    each.filter_map(|(index, input)| input.profile.events().get((*index)?))
        .collect()
}

fn is_scaled(inputs: &[Input<'_>], events: &[TableEvent]) -> bool {
    let mut events = events.iter().flat_map(|event| events_of(event, inputs));
    events.any(EventProfile::is_scaled)
}

/// Returns the sums of all top rows, by event.
pub(crate) fn totals(grid: &Grid, events: usize) -> Vec<Measure> {
    let mut totals = vec![Measure::default(); events];
    for index in 0..grid.len() {
        if grid.row(index).parent.is_none() {
            for (total, measure) in totals.iter_mut().zip(grid.measures(index, 0)) {
                total.add(measure);
            }
        }
    }
    totals
}

/// The names of one row.
#[derive(Default)]
pub(crate) struct RowNames<'a> {
    /// The names of the row's own key.
    own: Vec<Cell<'a>>,
    /// The cell of each column; `None` where the row above has the same cell.
    pub cells: Vec<Option<Cell<'a>>>,
}

/// The columns that name rows.
pub(crate) struct NameColumns {
    levels: Vec<Dimension>,
    /// The index of the first of them in the table.
    pub first: usize,
    /// The number of columns without `level` and `name`.
    details: usize,
    /// For each level, the indices among the details of its cells.
    places: Vec<Vec<usize>>,
}

impl NameColumns {
    pub(crate) fn push_heads(
        labels: &Labels,
        levels: &[Dimension],
        heads: &mut Vec<Column>,
    ) -> Self {
        let mut columns = NameColumns {
            levels: levels.to_vec(),
            first: heads.len(),
            details: 0,
            places: Vec::new(),
        };
        let has_levels = levels.len() > 1;
        for dimension in levels {
            let mut places = Vec::new();
            let own = match has_levels {
                true => {
                    let mut own = labels.heads(*dimension);
                    own.extend(labels.key_heads(*dimension));
                    own
                }
                false => labels.all_heads(*dimension),
            };
            for mut head in own {
                let known = heads[columns.first..]
                    .iter()
                    .position(|known| known.id == head.id);
                places.push(known.unwrap_or(heads.len() - columns.first));
                if known.is_none() {
                    head.is_for_programs |= has_levels;
                    heads.push(head);
                }
            }
            columns.places.push(places);
        }
        columns.details = heads.len() - columns.first;
        if has_levels {
            let words: Vec<&str> = levels.iter().map(|level| word(*level)).collect();
            let level = Column::new("level", "level", ColumnKind::Name, Unit::None);
            heads.push(level.for_programs());
            let heading = words.join(" / ");
            heads.push(Column::new("name", heading, ColumnKind::Name, Unit::None));
        }
        columns
    }

    /// Finds the names of a row.
    pub(crate) fn find<'a>(
        &self,
        names: &mut RowNames<'a>,
        labels: &Labels,
        inputs: &[Input<'a>],
        row: GridRow,
    ) {
        let GridRow { level, key, .. } = row;
        let (input, dimension) = (&inputs[row.input], self.levels[level]);
        let RowNames { own, cells } = names;
        own.clear();
        cells.clear();
        if self.levels.len() == 1 {
            labels.push_all_cells(input, row.input, dimension, key, own);
            cells.extend(own.drain(..).map(Some));
            return;
        }
        labels.push_cells(input, dimension, key, own);
        let location = labels.location(input, row.input, dimension, key);
        let text = labels.text(dimension, own, &self.levels[..level], location);
        labels.push_key(input, dimension, key, own);
        cells.resize(self.details, None);
        for (place, cell) in self.places[level].iter().zip(own.drain(..)) {
            cells[*place] = Some(cell);
        }
        cells.push(Some(Cell::name(word(dimension))));
        cells.push(Some(Cell::name(text)));
    }
}

/// Sorts rows by the first event's share, then by the shares of other events and by name; slices of time by their
/// start.
pub(crate) fn sort(
    table: &mut Table,
    numbers: usize,
    names: usize,
    by_time: bool,
) -> Result<(), TableError> {
    let is_percent = |column: &usize| table.columns[*column].unit == Unit::Percent;
    let any = (0..numbers).any(|column| is_percent(&column));
    let start = table.column_index("start").filter(|_| by_time);
    let start = start.map(|column| (column, Direction::Ascending));
    let shares = (0..numbers).filter(|column| is_percent(column) || !any);
    // Columns of numbers, such as pids, stand before texts, so rows of equal shares are in the order of numbers.
    let names = names..table.columns.len();
    let order: Vec<_> = start
        .into_iter()
        .chain(shares.map(|column| (column, Direction::Descending)))
        .chain(names.map(|column| (column, Direction::Ascending)))
        .collect();
    table.sort_by_all(&order)
}

/// Returns the facts of one profile; if there are `several`, each fact names its profile. Percentages are of all
/// samples if `of_all` is set, else of the samples that passed the filters.
pub(crate) fn facts_of(
    input: &Input<'_>,
    place: usize,
    events: &[TableEvent],
    several: bool,
    of_all: bool,
) -> Facts {
    let indices: Vec<usize> = events.iter().filter_map(|event| event.of[place]).collect();
    let mut facts = facts_of_shares(input.profile, input.names, &indices, of_all);
    multiplex_facts(&mut facts, input.profile, &indices);
    events_of_windows(&mut facts, input.profile, &indices);
    if let Some(blocks) = input.blocks {
        block_facts(&mut facts, input.profile, blocks);
    }
    if !several {
        return facts;
    }
    let mut told = Facts::new();
    for fact in &facts {
        told.add(
            fact.severity,
            fact.id.as_str(),
            format!("{}: {}", input.label, fact.text),
            json!({"profile": input.label, "value": fact.value}),
        );
    }
    told
}

/// Adds facts on events that some profiles lack, and on events of other names that count as one.
pub(crate) fn add_recorded_facts(facts: &mut Facts, events: &[TableEvent], inputs: &[Input<'_>]) {
    let profiles: Vec<&Profile> = inputs.iter().map(|input| input.profile).collect();
    paired_facts(facts, events, &profiles);
    for event in events {
        let recorded = event.of.iter().flatten().count();
        if recorded < event.of.len() {
            facts.add(
                Severity::Loss,
                "event_not_in_all",
                format!(
                    "{} was recorded in {recorded} of {} profiles only",
                    event.name,
                    event.of.len()
                ),
                json!({"event": event.name, "profiles": recorded}),
            );
        }
    }
}

/// Adds a fact on the meaning of marks, if the table has any.
pub(crate) fn add_few(table: &mut Table, few: u64) {
    let count = table.count_marks(&Mark::FewSamples);
    if count > 0 {
        table.facts.add(
            Severity::Info,
            "few_samples",
            format!("values that end in ? rest on fewer than {few} samples"),
            count,
        );
    }
}
