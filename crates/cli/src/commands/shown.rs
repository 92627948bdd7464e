//! Output of a command's table: limit, order, format and pager.

use super::profiles::Loaded;
use crate::formats::TableFormat;
use crate::remedies;
use crate::screen::{ScreenArguments, Spelling, is_utf8};
use anyhow::Context;
use dioptra_tables::{
    ColumnKind, Direction, FittedOptions, Format, ShownRows, Table, TextOptions, write_fitted,
};
use std::io;
use std::num::NonZeroU32;

/// Arguments of every command that shows a table of profiles.
#[derive(clap::Args)]
pub struct Shown {
    /// Show this many rows at most; below each row too [default: all; at a terminal 40]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Show all rows at a terminal, too
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Sort by this column, by its id or heading, such as `samples` or `module`; with `:asc` the smallest come first,
    /// with `:desc` the largest [default: what matters most first; names by the alphabet, numbers from the largest]
    #[arg(long, value_name = "COLUMN[:asc|:desc]")]
    sort: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    #[command(flatten)]
    screen: ScreenArguments,
}

/// Arguments of tables whose rows may be slices of time, and whose values may rest on few samples.
#[derive(clap::Args)]
pub struct Rows {
    /// Mark values that rest on fewer samples with `?`: derived ones, differences, shares of a row, and all that show
    /// errors
    #[arg(long, value_name = "SAMPLES", default_value_t = 10)]
    pub few: u64,
    /// Number of slices of `--by time`
    #[arg(long, value_name = "N", default_value = "20")]
    pub slices: NonZeroU32,
}

/// The number of rows at a terminal unless the user gives a number.
const ROWS_AT_A_TERMINAL: usize = 40;

impl Shown {
    /// Returns whether the table is made to fit a terminal.
    pub fn is_fitted(&self) -> bool {
        let screen = self.screen.screen();
        self.format == TableFormat::Text && (screen.is_terminal || screen.color)
    }

    /// Limits text in files and pipes to `rows` rows unless the user gives a limit. Terminals have a limit of their
    /// own.
    pub fn limit_text(&mut self, rows: usize) {
        if self.format == TableFormat::Text && !self.all && !self.is_fitted() {
            self.limit.get_or_insert(rows);
        }
    }

    /// Sorts and cuts a table of this many levels, and writes it to standard output. Diagnostics go to standard error
    /// where the format has no place for them.
    ///
    /// # Errors
    /// There is no column to sort by, writing fails, or one of the profiles was damaged.
    pub fn write(
        &self,
        mut table: Table,
        levels: usize,
        errors: bool,
        loaded: &[Loaded],
    ) -> anyhow::Result<()> {
        remedies::spell(&mut table.facts);
        let sorted_by = self.sort.as_deref();
        let sorted_by = sorted_by
            .map(|column| sort(&mut table, column))
            .transpose()?;
        if let Some(limit) = self.limit
            && levels > 1
        {
            table.limit_below(limit)?;
        }
        let screen = self.screen.screen();
        if self.is_fitted() {
            let options = FittedOptions {
                width: screen.width,
                rows: match self.limit {
                    Some(limit) => ShownRows::Top(limit),
                    None if self.all || !screen.is_terminal => ShownRows::All,
                    None => ShownRows::Best(ROWS_AT_A_TERMINAL),
                },
                errors,
                color: screen.color,
                unicode: is_utf8(),
                sorted_by,
            };
            screen.show(Spelling::Done, |out| {
                Ok(write_fitted(&table, &options, out)?)
            })?;
            return loaded.iter().try_for_each(Loaded::check_end);
        }
        let format = Format::from(self.format);
        let text = TextOptions {
            limit: self.limit,
            errors,
            ..TextOptions::default()
        };
        if let Some(limit) = self.limit.filter(|_| format != Format::Text) {
            table.limit(limit)?;
        }
        let spelling = match self.format.is_json() {
            true => Spelling::Json,
            false => Spelling::Text,
        };
        screen.show(
            spelling,
            |out| Ok(format.write_limited(&table, &text, out)?),
        )?;
        if !format.shows_facts() {
            table.facts.write_text(&mut io::stderr().lock())?;
        }
        loaded.iter().try_for_each(Loaded::check_end)
    }
}

/// Sorts by the column with this id or heading, and returns its index. Without `:asc` or `:desc`, names are sorted
/// upwards and numbers downwards.
fn sort(table: &mut Table, wanted: &str) -> anyhow::Result<usize> {
    let (wanted, chosen) = match wanted.rsplit_once(':') {
        Some((column, "asc")) => (column, Some(Direction::Ascending)),
        Some((column, "desc")) => (column, Some(Direction::Descending)),
        _ => (wanted, None),
    };
    let index = table
        .column_index(wanted)
        .or_else(|| {
            table
                .columns
                .iter()
                .position(|column| column.name == wanted)
        })
        // If several events have this column, the first event's is used.
        .or_else(|| {
            table.columns.iter().position(|column| {
                let rest = column.id.strip_prefix(wanted);
                rest.is_some_and(|rest| rest.starts_with('['))
            })
        })
        .with_context(|| {
            let known: Vec<&str> = table
                .columns
                .iter()
                .map(|column| column.id.as_str())
                .collect();
            format!(
                "--sort: there is no column `{wanted}`; there are {}",
                known.join(", ")
            )
        })?;
    let direction = chosen.unwrap_or(match table.columns[index].kind {
        ColumnKind::Name => Direction::Ascending,
        _ => Direction::Descending,
    });
    table.sort_by(index, direction)?;
    Ok(index)
}
