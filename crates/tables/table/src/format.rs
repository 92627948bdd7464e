//! The renderings under one roof, for `--format`.

use std::io::Write;
use std::str::FromStr;

use crate::{RenderError, Table, TextOptions, write_csv, write_json, write_ndjson, write_text};

/// Which rendering of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Text,
    /// RFC 4180 for spreadsheets and scripts; without the table's facts.
    Csv,
    /// The whole table, facts included, for programs.
    Json,
    /// As JSON, a line for each row after one for everything else.
    Ndjson,
}

/// A word that names no [`Format`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no format; use text, csv, json or ndjson")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Format, UnknownFormat> {
        match word {
            "text" => Ok(Format::Text),
            "csv" => Ok(Format::Csv),
            "json" => Ok(Format::Json),
            "ndjson" => Ok(Format::Ndjson),
            _ => Err(UnknownFormat(word.to_owned())),
        }
    }
}

impl Format {
    /// Whether the rendering shows the table's facts itself. Where it does not, the caller prints them with
    /// [`crate::Facts::write_text`] on standard error.
    pub fn shows_facts(self) -> bool {
        self != Format::Csv
    }

    /// Writes `table` in this format. `limit` is how many top rows to keep at most; text and JSON say what was left
    /// out, JSON as the fact `rows_left_out`, which is also added to `table.facts` for the caller of CSV to print.
    ///
    /// # Errors
    /// [`RenderError::Table`] before anything is written if the table contradicts itself, else those of the writer.
    pub fn write(
        self,
        table: &mut Table,
        limit: Option<usize>,
        out: impl Write,
    ) -> Result<(), RenderError> {
        let options = TextOptions {
            limit,
            ..TextOptions::default()
        };
        self.write_with(table, &options, out)
    }

    /// As [`Format::write`], with all that can be said of text.
    ///
    /// # Errors
    /// As [`Format::write`].
    pub fn write_with(
        self,
        table: &mut Table,
        options: &TextOptions,
        out: impl Write,
    ) -> Result<(), RenderError> {
        // Text says itself what it leaves out.
        if let Some(limit) = options.limit.filter(|_| self != Format::Text) {
            table.limit(limit)?;
        }
        self.write_limited(table, options, out)
    }

    /// As [`Format::write_with`], but writes all rows of a table in other formats than text: [`Table::limit`] was
    /// called before, if there is a limit.
    ///
    /// # Errors
    /// As [`Format::write`].
    pub fn write_limited(
        self,
        table: &Table,
        options: &TextOptions,
        out: impl Write,
    ) -> Result<(), RenderError> {
        match self {
            Format::Text => write_text(table, options, out),
            Format::Csv => write_csv(table, out),
            Format::Ndjson => write_ndjson(table, out),
            Format::Json => write_json(table, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!("csv".parse(), Ok(Format::Csv));
        assert_eq!("json".parse(), Ok(Format::Json));
        assert_eq!("text".parse(), Ok(Format::Text));
        let error = "xml".parse::<Format>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`xml` is no format; use text, csv, json or ndjson"
        );
    }
}
