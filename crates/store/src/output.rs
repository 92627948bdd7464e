//! Answers as text, CSV, JSON or Parquet.

use crate::error::StoreError;
use crate::session::Answer;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use dioptra_tables::{display_width, escape};
use parquet::arrow::ArrowWriter;
use std::io::Write;
use std::sync::Arc;

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Aligned columns for people.
    #[default]
    Text,
    /// Comma-separated values with a line of names. Lists are joined with `;`.
    Csv,
    /// A JSON array with an object for each row.
    Json,
    /// A Parquet file.
    Parquet,
}

/// Writes an answer.
///
/// # Errors
/// Writing failed, or a column has a type that the format can't hold.
pub fn write_answer(
    answer: &Answer,
    format: OutputFormat,
    out: &mut (dyn Write + Send),
) -> Result<(), StoreError> {
    match format {
        OutputFormat::Text => write_text(answer, out),
        OutputFormat::Csv => {
            let mut writer = arrow::csv::Writer::new(&mut *out);
            for batch in &answer.batches {
                writer.write(&with_joined_lists(batch)?)?;
            }
            if answer.batches.is_empty() {
                writer.write(&RecordBatch::new_empty(Arc::clone(&answer.schema)))?;
            }
            Ok(())
        }
        OutputFormat::Json => {
            let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
            let mut writer = builder.build::<_, arrow::json::writer::JsonArray>(&mut *out);
            for batch in &answer.batches {
                writer.write(batch)?;
            }
            writer.finish()?;
            writeln!(out)?;
            Ok(())
        }
        OutputFormat::Parquet => {
            let mut writer = ArrowWriter::try_new(&mut *out, Arc::clone(&answer.schema), None)?;
            for batch in &answer.batches {
                writer.write(batch)?;
            }
            writer.close()?;
            Ok(())
        }
    }
}

/// Returns a batch whose lists of text are texts joined with `;`.
fn with_joined_lists(batch: &RecordBatch) -> Result<RecordBatch, StoreError> {
    let schema = batch.schema();
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if !matches!(column.data_type(), DataType::List(_)) {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
            continue;
        }
        let list = column.as_list::<i32>();
        let mut texts = Vec::with_capacity(list.len());
        for row in 0..list.len() {
            texts.push(match list.is_null(row) {
                true => None,
                false => Some(joined(&list.value(row))?),
            });
        }
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(StringArray::from(texts)));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

fn joined(values: &ArrayRef) -> Result<String, StoreError> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(values, &options)?;
    let each = (0..values.len()).map(|row| formatter.value(row).to_string());
    Ok(each.collect::<Vec<_>>().join(";"))
}

/// Writes aligned columns, numbers to the right, and the number of rows.
fn write_text(answer: &Answer, out: &mut dyn Write) -> Result<(), StoreError> {
    let fields = answer.schema.fields();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let options = FormatOptions::default();
    for batch in &answer.batches {
        let columns = batch.columns().iter();
        let formatters = columns
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = formatters
                .iter()
                .map(|formatter| escape(&formatter.value(row).to_string()));
            rows.push(cells.collect());
        }
    }
    let heads: Vec<String> = fields.iter().map(|field| escape(field.name())).collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            let cells = rows.iter().map(|row| display_width(&row[column]));
            cells.fold(display_width(&heads[column]), usize::max)
        })
        .collect();
    let right: Vec<bool> = fields
        .iter()
        .map(|field| field.data_type().is_numeric())
        .collect();
    let mut write_row = |cells: &[String]| -> std::io::Result<()> {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let blanks = " ".repeat(widths[column] - display_width(cell));
            if column > 0 {
                line.push_str("  ");
            }
            match right[column] {
                true => line.extend([&*blanks, cell]),
                false => line.extend([cell, &*blanks]),
            }
        }
        writeln!(out, "{}", line.trim_end())
    };
    write_row(&heads)?;
    for row in &rows {
        write_row(row)?;
    }
    match rows.len() {
        1 => writeln!(out, "# 1 row")?,
        count => writeln!(out, "# {count} rows")?,
    }
    Ok(())
}
