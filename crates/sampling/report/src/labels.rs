//! The names of rows: the columns and cells of each dimension, and one text for tables of several dimensions.

use crate::grid::Grid;
use crate::locations::{Locations, NamedRows, id_of};
use crate::{Blocks, Shapes, grid};
use dioptra_tables::{Cell, Column, ColumnKind, Unit};
use std::borrow::Cow;

use dioptra_profile::{Dimension, FunctionName, Names, Profile, Slices, TimeSlices, UNKNOWN};

/// A profile with the names of its addresses.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The names of its addresses.
    pub names: &'a Names,
    /// Its basic blocks, for [`Dimension::Block`].
    pub blocks: Option<&'a Blocks>,
    /// The shapes of functions without names, by which they are matched with functions of other versions of a module.
    pub shapes: Option<&'a Shapes>,
    /// The profile's name among several: its file.
    pub label: &'a str,
}

/// The index of the location among the columns that name a row.
const AFTER_MODULE: usize = 1;

/// The options and locations by which rows are named.
#[derive(Clone)]
pub(crate) struct Labels {
    /// Whether some functions are inlined ones.
    pub has_inlined: bool,
    /// Whether processes and threads are named without their numbers.
    pub tasks_by_name: bool,
    /// The slices of time.
    pub slices: TimeSlices,
    /// The locations of rows that share their names with others; `None` where rows have no keys for programs either.
    locations: Option<Locations>,
}

impl Labels {
    /// Makes the labels for tables of `inputs` along these dimensions.
    pub(crate) fn new(
        inputs: &[Input<'_>],
        by: &[Dimension],
        slices: Slices,
        tasks_by_name: bool,
    ) -> Self {
        Labels {
            has_inlined: inputs.iter().any(|input| input.names.has_inlined()),
            tasks_by_name,
            slices: if by.contains(&Dimension::Time) {
                grid::slices(inputs, slices)
            } else {
                TimeSlices::default()
            },
            locations: None,
        }
    }

    /// Makes the labels for the functions of a call tree.
    pub(crate) fn of_functions(has_inlined: bool, locations: Locations) -> Self {
        Labels {
            has_inlined,
            tasks_by_name: false,
            slices: TimeSlices::default(),
            locations: Some(locations),
        }
    }

    /// Gives the rows of a table keys for programs, and locations to rows that share their names with others.
    pub(crate) fn locate(&mut self, inputs: &[Input<'_>], grid: &Grid, levels: &[Dimension]) {
        let number_of = |input, module| grid.module_number(input, module);
        let mut rows = NamedRows::new(inputs, &number_of);
        for row in (0..grid.len()).map(|index| grid.row(index)) {
            rows.add(row.input, levels[row.level], row.key);
        }
        self.locations = Some(rows.locations());
    }

    /// Returns the columns of a row's key for programs, which does not depend on its name: its module's build id or
    /// path, and the address of the function in the module.
    pub(crate) fn key_heads(&self, dimension: Dimension) -> Vec<Column> {
        if self.locations.is_none() || !has_module(dimension) {
            return Vec::new();
        }
        let head = |id, name, kind| Column::new(id, name, kind, Unit::None).for_programs();
        let mut heads = vec![head("module_id", "module id", ColumnKind::Name)];
        if dimension == Dimension::Function {
            let (id, name) = ("function_address", "function address");
            heads.push(head(id, name, ColumnKind::Address));
        }
        heads
    }

    /// Appends the cells of [`Labels::key_heads`].
    pub(crate) fn push_key<'a>(
        &self,
        input: &Input<'a>,
        dimension: Dimension,
        key: u32,
        cells: &mut Vec<Cell<'a>>,
    ) {
        if self.locations.is_none() || !has_module(dimension) {
            return;
        }
        let Input { profile, names, .. } = *input;
        let index = key as usize;
        let function = names
            .functions()
            .get(index)
            .filter(|_| dimension == Dimension::Function);
        let module = match dimension {
            Dimension::Module => Some(key),
            Dimension::Function => function.map(|function| function.module),
            Dimension::Block => input
                .blocks
                .and_then(|blocks| blocks.get(key))
                .map(|block| block.module),
            Dimension::Address => Some(profile.frames().get(key).module),
            _ => names.lines().get(index).map(|line| line.module),
        };
        cells.push(module.map_or(Cell::Empty, |module| {
            Cell::name(id_of(profile.modules().get(module)))
        }));
        if dimension == Dimension::Function {
            let start = function.and_then(|function| function.start);
            cells.push(start.map_or(Cell::Empty, Cell::Address));
        }
    }

    /// Returns the columns that name a row and tell it apart from others of the same names.
    pub(crate) fn all_heads(&self, dimension: Dimension) -> Vec<Column> {
        let mut heads = self.heads(dimension);
        if self.has_locations(dimension) {
            let location = Column::new("location", "location", ColumnKind::Name, Unit::None);
            heads.insert(AFTER_MODULE, location);
        }
        heads.extend(self.key_heads(dimension));
        heads
    }

    /// Appends the cells of [`Labels::all_heads`] for a row of the profile with the index `place`.
    pub(crate) fn push_all_cells<'a>(
        &self,
        input: &Input<'a>,
        place: usize,
        dimension: Dimension,
        key: u32,
        cells: &mut Vec<Cell<'a>>,
    ) {
        let first = cells.len();
        self.push_cells(input, dimension, key, cells);
        if self.has_locations(dimension) {
            let location = self.location(input, place, dimension, key);
            let cell = location.map(|location| Cell::name(location.to_owned()));
            cells.insert(first + AFTER_MODULE, cell.unwrap_or(Cell::Empty));
        }
        self.push_key(input, dimension, key, cells);
    }

    /// Returns the location of a row that shares its names with others.
    pub(crate) fn location(
        &self,
        input: &Input<'_>,
        place: usize,
        dimension: Dimension,
        key: u32,
    ) -> Option<&str> {
        let locations = self.locations.as_ref()?;
        let module = |module| locations.module(place, module);
        let Input { profile, names, .. } = *input;
        match dimension {
            Dimension::Function => {
                let function = names.functions().get(key as usize)?;
                locations.function(place, key, function.module)
            }
            Dimension::Module => module(key),
            Dimension::Address => module(profile.frames().get(key).module),
            Dimension::Block => module(input.blocks?.get(key)?.module),
            Dimension::Line | Dimension::OutermostLine => {
                module(names.lines().get(key as usize)?.module)
            }
            _ => None,
        }
    }

    /// Returns whether rows of a dimension may have locations.
    pub(crate) fn has_locations(&self, dimension: Dimension) -> bool {
        let locations = self.locations.as_ref();
        has_module(dimension) && locations.is_some_and(|locations| !locations.is_empty())
    }
}

/// Returns whether the first name of a row is its module's.
fn has_module(dimension: Dimension) -> bool {
    matches!(
        dimension,
        Dimension::Module
            | Dimension::Function
            | Dimension::Line
            | Dimension::OutermostLine
            | Dimension::Block
            | Dimension::Address
    )
}

/// Returns the word for a dimension in tables, as `--by` reads it.
pub(crate) fn word(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Function => "function",
        Dimension::Module => "module",
        Dimension::Program => "program",
        Dimension::Process => "process",
        Dimension::Thread => "thread",
        Dimension::Comm => "comm",
        Dimension::Cpu => "cpu",
        Dimension::Socket => "socket",
        Dimension::Block => "block",
        Dimension::Time => "time",
        Dimension::Address => "instruction",
        Dimension::Line | Dimension::OutermostLine => "line",
        // `Dimension` may get more variants.
        _ => "key",
    }
}

/// Returns the columns that name a function; with inlined functions one more column marks these.
fn function_heads(has_inlined: bool) -> &'static [&'static str] {
    if has_inlined {
        &["module", "inlined", "function"]
    } else {
        &["module", "function"]
    }
}

/// Returns the cell that marks a function's row as its code inlined into others.
fn inlined_cell(function: &FunctionName) -> Cell<'static> {
    if function.is_inlined {
        Cell::name("inlined")
    } else {
        Cell::Empty
    }
}

fn number(number: Option<u32>) -> Cell<'static> {
    number.map_or(Cell::Empty, |id| Cell::Count(id.into()))
}

impl Labels {
    /// Returns the columns that name a row of `dimension`.
    pub(crate) fn heads(&self, dimension: Dimension) -> Vec<Column> {
        let names: &[&str] = match dimension {
            Dimension::Function => function_heads(self.has_inlined),
            Dimension::Module => &["module"],
            Dimension::Program => &["processes", "program"],
            Dimension::Process if self.tasks_by_name => &["process"],
            Dimension::Process => &["pid", "process"],
            Dimension::Thread if self.tasks_by_name => &["thread"],
            Dimension::Thread => &["pid", "tid", "thread"],
            Dimension::Comm => &["comm"],
            Dimension::Cpu => &["cpu"],
            Dimension::Socket => &["socket"],
            Dimension::Block => &[
                "module",
                "address",
                "end_address",
                "function",
                "file",
                "line",
            ],
            Dimension::Time => &["start", "end"],
            Dimension::Address => &["module", "address", "function"],
            Dimension::Line | Dimension::OutermostLine => &["module", "file", "line"],
            _ => &["key"],
        };
        let column = |name: &&str| {
            let (kind, unit) = match (*name, dimension) {
                ("address" | "end_address", _) => (ColumnKind::Address, Unit::None),
                (_, Dimension::Time) => (ColumnKind::Time, Unit::Nanoseconds),
                _ => (ColumnKind::Name, Unit::None),
            };
            Column::new(*name, *name, kind, unit)
        };
        names.iter().map(column).collect()
    }

    /// Appends the cells of the row with this key, one for each of [`Labels::heads`].
    pub(crate) fn push_cells<'a>(
        &self,
        input: &Input<'a>,
        dimension: Dimension,
        key: u32,
        cells: &mut Vec<Cell<'a>>,
    ) {
        let Input { profile, names, .. } = *input;
        let index = key as usize;
        let tasks = profile.tasks();
        let module = |id| Cell::name(profile.modules().get(id).label.as_str());
        let line = |id: usize, cells: &mut Vec<Cell<'a>>| match names.lines().get(id) {
            Some(line) => {
                cells.push(match &line.file {
                    Some(file) => Cell::name(&**file),
                    None => Cell::name(UNKNOWN),
                });
                cells.push(number(line.line));
            }
            None => cells.extend([Cell::Empty, Cell::Empty]),
        };
        let function = |id: usize| {
            let function = names.functions().get(id);
            function.map_or(Cell::Empty, |function| Cell::name(&*function.name))
        };
        match dimension {
            Dimension::Function => {
                let known = names.functions().get(index);
                cells.push(known.map_or(Cell::Empty, |known| module(known.module)));
                if self.has_inlined {
                    cells.push(known.map_or(Cell::Empty, inlined_cell));
                }
                cells.push(function(index));
            }
            Dimension::Module => cells.push(module(key)),
            Dimension::Program => match tasks.programs().get(index) {
                Some(program) => {
                    cells.push(Cell::Count(program.pids.len() as u64));
                    cells.push(Cell::name(&*program.name));
                }
                None => cells.extend([Cell::Empty, Cell::name(UNKNOWN)]),
            },
            Dimension::Process => {
                let process = tasks.processes().get(index);
                if !self.tasks_by_name {
                    cells.push(number(process.map(|process| process.pid)));
                }
                cells.push(Cell::name(tasks.process_name(key)));
            }
            Dimension::Thread => {
                let thread = tasks.threads().get(index);
                if !self.tasks_by_name {
                    let process =
                        thread.and_then(|thread| tasks.processes().get(thread.process as usize));
                    cells.push(number(process.map(|process| process.pid)));
                    cells.push(number(thread.map(|thread| thread.tid)));
                }
                cells.push(Cell::name(tasks.thread_name(key)));
            }
            Dimension::Comm => {
                let comm = tasks.comms().get(index);
                cells.push(Cell::name(comm.map_or(UNKNOWN, String::as_str)));
            }
            Dimension::Cpu | Dimension::Socket => {
                cells.push(number(Some(key).filter(|number| *number != u32::MAX)));
            }
            Dimension::Block => match input.blocks.and_then(|blocks| blocks.get(key)) {
                Some(block) => {
                    cells.push(module(block.module));
                    match &block.addresses {
                        Some(range) => {
                            cells.extend([Cell::Address(range.start), Cell::Address(range.end)]);
                        }
                        None => cells.extend([Cell::Empty, Cell::Empty]),
                    }
                    cells.push(function(block.function as usize));
                    line(block.line.map_or(usize::MAX, |line| line as usize), cells);
                }
                None => cells.extend(vec![Cell::Empty; 6]),
            },
            Dimension::Time => {
                if key == TimeSlices::TIMELESS {
                    cells.extend([Cell::Empty, Cell::Empty]);
                } else {
                    let (start, end) = self.slices.span(key);
                    cells.extend([Cell::Count(start), Cell::Count(end)]);
                }
            }
            Dimension::Address => {
                let frame = profile.frames().get(key);
                cells.push(module(frame.module));
                cells.push(Cell::Address(frame.address));
                let id = names.functions().len().checked_sub(1);
                cells.push(id.map_or(Cell::Empty, |_| function(names.of_frame(key) as usize)));
            }
            Dimension::Line | Dimension::OutermostLine => {
                let known = names.lines().get(index);
                cells.push(known.map_or(Cell::Empty, |line| module(line.module)));
                line(index, cells);
            }
            _ => cells.push(Cell::Count(key.into())),
        }
    }

    /// Returns one text for a row with these cells, below rows of the dimensions `above`, whose names it need not
    /// repeat. The text of a row that shares its names with others contains its `location`.
    pub(crate) fn text<'a>(
        &self,
        dimension: Dimension,
        cells: &[Cell<'a>],
        above: &[Dimension],
        location: Option<&str>,
    ) -> Cow<'a, str> {
        let text = self.plain_text(dimension, cells, above, location);
        match location {
            // A function's text has the location beside the module already.
            Some(location) if dimension != Dimension::Function => {
                format!("{text} ({location})").into()
            }
            _ => text,
        }
    }

    fn plain_text<'a>(
        &self,
        dimension: Dimension,
        cells: &[Cell<'a>],
        above: &[Dimension],
        location: Option<&str>,
    ) -> Cow<'a, str> {
        let text = |index: usize| -> Cow<'a, str> {
            match cells.get(index) {
                Some(Cell::Name(name)) => name.clone(),
                Some(Cell::Count(count)) => count.to_string().into(),
                Some(Cell::Address(address)) => format!("{address:#x}").into(),
                _ => "".into(),
            }
        };
        let has = |dimension| above.contains(&dimension);
        let with = |text: Cow<'a, str>, more: Cow<'a, str>| match more.is_empty() {
            true => text,
            false => format!("{text} ({more})").into(),
        };
        // The module, unless a row above names it.
        let module = || match has(Dimension::Module) || has(Dimension::Function) {
            true => "".into(),
            false => text(0),
        };
        let of_function = |index: usize| match has(Dimension::Function) {
            true => "".into(),
            false => text(index),
        };
        let file_line = |file: usize| match text(file + 1) {
            line if line.is_empty() => text(file),
            line => format!("{}:{line}", text(file)).into(),
        };
        match dimension {
            Dimension::Function => {
                let name = text(cells.len() - 1);
                let inlined = self.has_inlined && cells[1] != Cell::Empty;
                let place: Cow<'a, str> = match (has(Dimension::Module), location) {
                    (true, None) => "".into(),
                    (true, Some(location)) => location.to_owned().into(),
                    (false, None) => text(0),
                    (false, Some(location)) => format!("{}, {location}", text(0)).into(),
                };
                with(
                    if inlined {
                        format!("{name} inlined").into()
                    } else {
                        name
                    },
                    place,
                )
            }
            Dimension::Program => with(
                text(1),
                match &*text(0) {
                    "" | "1" => "".into(),
                    count => format!("{count} processes").into(),
                },
            ),
            Dimension::Process if !self.tasks_by_name => with(text(1), text(0)),
            Dimension::Thread if !self.tasks_by_name => with(text(2), text(1)),
            Dimension::Cpu | Dimension::Socket => match text(0) {
                number if number.is_empty() => format!("{} {UNKNOWN}", word(dimension)).into(),
                number => format!("{} {number}", word(dimension)).into(),
            },
            Dimension::Block => {
                let range = match text(1) {
                    start if start.is_empty() => "[no code]".into(),
                    start => Cow::from(format!("{start}..{}", text(2))),
                };
                let line = match cells.get(4) {
                    Some(Cell::Name(_)) => format!(" {}", file_line(4)),
                    _ => String::new(),
                };
                with(format!("{range}{line}").into(), of_function(3))
            }
            Dimension::Time => {
                let seconds = |index: usize| match cells.get(index) {
                    Some(Cell::Count(time)) => format!("{:.6} s", *time as f64 / 1e9),
                    _ => "no time".to_owned(),
                };
                format!("{} .. {}", seconds(0), seconds(1)).into()
            }
            Dimension::Address => with(text(1), of_function(2)),
            Dimension::Line | Dimension::OutermostLine => with(
                file_line(1),
                if text(1) == UNKNOWN {
                    module()
                } else {
                    "".into()
                },
            ),
            _ => text(0),
        }
    }
}
