//! How a command shows its table.

use super::profiles::Loaded;
use anyhow::Context;
use clap::ValueEnum;
use dioptra_report::{ColumnKind, Direction, Format, Table, TextOptions};
use std::io;
use std::num::NonZeroU32;

/// Arguments of every command that shows a table of profiles.
#[derive(clap::Args)]
pub struct Shown {
    /// Show this many rows at most; below each row too
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Sort by this column, by its id or heading, such as `samples` or `module` [default: what matters most first]
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// How to show the table
    #[arg(long, value_enum, default_value_t = Shape::Text)]
    pub format: Shape,
}

/// Arguments of tables whose rows may be slices of time, and whose values may rest on few samples.
#[derive(clap::Args)]
pub struct Rows {
    /// Mark values that rest on fewer samples with `?`: derived ones, differences, shares of a row, and all that show
    /// errors
    #[arg(long, value_name = "SAMPLES", default_value_t = 10)]
    pub few: u64,
    /// How many slices `--by time` has
    #[arg(long, value_name = "N", default_value = "20")]
    pub slices: NonZeroU32,
}

/// Renderings, for arguments.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Aligned columns
    Text,
    /// RFC 4180; losses go to standard error
    Csv,
    /// All there is, in full precision
    Json,
}

impl From<Shape> for Format {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Text => Format::Text,
            Shape::Csv => Format::Csv,
            Shape::Json => Format::Json,
        }
    }
}

impl Shown {
    /// Sorts and cuts a table of so many levels, and writes it to standard output, what is to be said of it perhaps to
    /// standard error.
    ///
    /// # Errors
    /// If there is no column to sort by, writing fails, or one of the profiles was damaged.
    pub fn write(
        &self,
        mut table: Table,
        levels: usize,
        errors: bool,
        loaded: &[Loaded],
    ) -> anyhow::Result<()> {
        if let Some(column) = &self.sort {
            sort(&mut table, column)?;
        }
        if let Some(limit) = self.limit
            && levels > 1
        {
            table.limit_below(limit)?;
        }
        let format = Format::from(self.format);
        let text = TextOptions {
            limit: self.limit,
            errors,
            ..TextOptions::default()
        };
        format.write_with(&mut table, &text, io::stdout().lock())?;
        if !format.shows_facts() {
            table.facts.write_text(&mut io::stderr().lock())?;
        }
        loaded.iter().try_for_each(Loaded::check_end)
    }
}

/// Sorts by the column with this id or heading: names upwards, numbers downwards.
fn sort(table: &mut Table, wanted: &str) -> anyhow::Result<()> {
    let index = table
        .column_index(wanted)
        .or_else(|| {
            table
                .columns
                .iter()
                .position(|column| column.name == wanted)
        })
        // Of several events the first one.
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
    let direction = match table.columns[index].kind {
        ColumnKind::Name => Direction::Ascending,
        _ => Direction::Descending,
    };
    table.sort_by(index, direction)?;
    Ok(())
}
