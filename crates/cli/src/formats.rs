//! The values of `--format`.

use crate::screen::Spelling;
use clap::ValueEnum;
use dioptra_tables::Format;

/// The output formats of tables.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Aligned columns
    Text,
    /// RFC 4180; losses go to standard error
    Csv,
    /// All there is, in full precision
    Json,
    /// As JSON, an object on a line of its own for each row; the first line has everything else
    Ndjson,
}

impl TableFormat {
    /// Returns true if programs read this format, which has all that is known of each number.
    pub fn is_json(self) -> bool {
        matches!(self, TableFormat::Json | TableFormat::Ndjson)
    }
}

impl From<TableFormat> for Format {
    fn from(format: TableFormat) -> Self {
        match format {
            TableFormat::Text => Format::Text,
            TableFormat::Csv => Format::Csv,
            TableFormat::Json => Format::Json,
            TableFormat::Ndjson => Format::Ndjson,
        }
    }
}

/// The output formats of commands that show no table.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    /// For people
    Text,
    /// For programs
    Json,
}

impl TextOrJson {
    /// Returns the spelling of control characters that suits the format.
    pub fn spelling(self) -> Spelling {
        match self {
            TextOrJson::Text => Spelling::Text,
            TextOrJson::Json => Spelling::Json,
        }
    }
}
