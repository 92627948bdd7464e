//! The kinds of rows: their keys, their samples, and their names.

use super::DisplayError;
use dioptra_profile::FunctionPaths;
use dioptra_profile::{Dimension, SelectError, aggregate};
use dioptra_report::{Input, RowLabels};
use dioptra_tables::{Cell, Column, ColumnKind, Unit};

/// The kind of the rows of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowRows {
    /// A function of a module, over all processes.
    Function,
    /// A function and the path of its callers; needs call chains.
    Path,
    /// A line of a source file; of inlined code its own.
    Line,
    /// A module, whatever function of it.
    Module,
    /// A thread, whatever function it is in.
    Thread,
    /// A process, whatever function it is in.
    Process,
}

impl WindowRows {
    /// Whether a row goes on through functions.
    pub(super) fn is_of_task(self) -> bool {
        matches!(self, WindowRows::Thread | WindowRows::Process)
    }

    pub(super) fn dimension(self) -> Dimension {
        match self {
            WindowRows::Function | WindowRows::Path => Dimension::Function,
            WindowRows::Line => Dimension::Line,
            WindowRows::Module => Dimension::Module,
            WindowRows::Thread => Dimension::Thread,
            WindowRows::Process => Dimension::Process,
        }
    }
}

/// The rows of one profile.
pub(super) struct Rows {
    pub by: WindowRows,
    /// There where stacks were loaded.
    pub paths: Option<FunctionPaths>,
}

/// A row's key, and its samples and their weight.
pub(super) type Counted = (u32, u64, u64);

impl Rows {
    pub fn new(input: &Input<'_>, by: WindowRows) -> Result<Rows, DisplayError> {
        let paths = FunctionPaths::new(input.profile, input.names);
        if by == WindowRows::Path && paths.is_none() {
            return Err(DisplayError::NoCallers);
        }
        if by.is_of_task() && !input.profile.options().threads {
            return Err(SelectError::NoThreads.into());
        }
        Ok(Rows { by, paths })
    }

    /// Returns the row of a call stack or frame of a thread.
    pub fn key(&self, input: &Input<'_>, place: u32, thread: u32) -> Option<u32> {
        let frame = input.profile.innermost_frame(place);
        match self.by {
            WindowRows::Function => Some(input.names.of_frame(frame)),
            WindowRows::Path => self.paths.as_ref().map(|paths| paths.of(place)),
            WindowRows::Line => Some(input.names.line_of(frame)),
            WindowRows::Module => Some(Rows::module(input, place)),
            WindowRows::Thread => Some(thread),
            WindowRows::Process => {
                let threads = input.profile.tasks().threads();
                threads.get(thread as usize).map(|thread| thread.process)
            }
        }
    }

    /// Returns the samples of an event by row.
    pub fn counts(&self, input: &Input<'_>, event: usize) -> Vec<Counted> {
        if let (WindowRows::Path, Some(paths)) = (self.by, &self.paths) {
            let counts = paths.counts(input.profile, event);
            let counts = (0_u32..).zip(counts).filter(|(_, count)| !count.is_zero());
            return counts
                .map(|(key, count)| (key, count.samples, count.weight))
                .collect();
        }
        let rows = aggregate(input.profile, input.names, self.by.dimension(), &[event]);
        let own = rows.iter().map(|row| (row.key, row.counts[0].own));
        own.filter(|(_, own)| !own.is_zero())
            .map(|(key, own)| (key, own.samples, own.weight))
            .collect()
    }

    pub fn labels(&self, input: &Input<'_>) -> RowLabels {
        RowLabels::new(input, self.by.dimension(), false)
    }

    /// Returns the module of a call stack's innermost frame.
    pub fn module(input: &Input<'_>, place: u32) -> u32 {
        let frame = input.profile.innermost_frame(place);
        input.profile.frames().get(frame).module
    }

    pub fn name_heads(&self, labels: &RowLabels) -> Vec<Column> {
        let mut heads = labels.heads();
        if self.by == WindowRows::Path {
            heads.push(Column::new(
                "callers",
                "callers",
                ColumnKind::Name,
                Unit::None,
            ));
        }
        heads
    }

    /// Returns the innermost function of a row by path, and the key itself of any other row.
    pub fn innermost(&self, key: u32) -> u32 {
        match &self.paths {
            Some(paths) if self.by == WindowRows::Path => {
                paths.functions(key).next().unwrap_or(u32::MAX)
            }
            _ => key,
        }
    }

    /// Returns one text that names a row.
    pub fn name(&self, input: &Input<'_>, key: u32) -> String {
        self.labels(input).text(input, self.innermost(key))
    }

    pub fn push_names<'a>(
        &self,
        input: &Input<'a>,
        labels: &RowLabels,
        key: u32,
        cells: &mut Vec<Cell<'a>>,
    ) {
        let Some(paths) = self.paths.as_ref().filter(|_| self.by == WindowRows::Path) else {
            labels.push_cells(input, key, cells);
            return;
        };
        let mut functions = paths.functions(key);
        let function = functions.next().unwrap_or(u32::MAX);
        labels.push_cells(input, function, cells);
        let callers: Vec<&str> = functions
            .filter_map(|caller| Some(&*input.names.functions().get(caller as usize)?.name))
            .collect();
        cells.push(Cell::name(callers.join(" < ")));
    }
}
