//! The layout of the Parquet files: the order of rows, encodings and pages.
//!
//! All of it is invisible to SQL. Bytes that repeat lie near each other and whole, so that zstd finds them.

use crate::error::StoreError;
use crate::schema::Table;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;

/// The number of this layout. Mergers of two versions must not write different bytes under one name.
pub(crate) const LAYOUT: i64 = 2;

/// The level of zstd. Levels above it take much longer for a few percent.
const LEVEL: i32 = 9;

/// The level of zstd for ids. Their digits are random: higher levels find repetitions that cost more than digits.
const LEVEL_OF_IDS: i32 = 3;

/// The bytes of a page of lists, before compression. zstd finds repetitions within a page only.
const LIST_PAGE: usize = 8 << 20;

/// The bytes of rows that are put in order at a time where files are merged.
const ORDERED_BYTES: usize = 128 << 20;

/// The imports whose rows are in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imports {
    /// A single one: each stack and each function has one row.
    One,
    /// Several, which share stacks and functions.
    Several,
}

/// The lists of names and ids of stacks.
const LISTS: [&str; 2] = ["frames.list.element", "function_ids.list.element"];

/// The columns by which engines may leave out row groups. Statistics of others would be much of a small file.
const WITH_STATISTICS: [&str; 4] = ["import_id", "event", "elapsed_ns", "date"];

/// Returns how Parquet is written.
///
/// Most files are small, so statistics and a copy of the schema in Arrow's own format would be much of them.
pub(crate) fn options(table: Table, imports: Imports) -> ArrowWriterOptions {
    let level = |level| Compression::ZSTD(ZstdLevel::try_new(level).unwrap_or_default());
    let times = ColumnPath::from("elapsed_ns");
    let mut properties = WriterProperties::builder()
        .set_compression(level(LEVEL))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        // Rising times are written as differences.
        .set_column_dictionary_enabled(times.clone(), false)
        .set_column_encoding(times, Encoding::DELTA_BINARY_PACKED)
        // Texts of any length would be cut in the middle of a character.
        .set_statistics_truncate_length(None)
        .set_column_index_truncate_length(None);
    for column in WITH_STATISTICS {
        let path = ColumnPath::from(column);
        properties = properties.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
    }
    for column in ["stack_id", "function_id"] {
        properties = properties.set_column_compression(column.into(), level(LEVEL_OF_IDS));
    }
    if table == Table::Stacks {
        // Numbers of a dictionary's texts don't lie on whole bytes, so that zstd would not see that stacks share calls.
        properties = properties.set_data_page_row_count_limit(usize::MAX);
        for column in LISTS {
            let parts: Vec<String> = column.split('.').map(str::to_owned).collect();
            let path = ColumnPath::from(parts);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_data_page_size_limit(path, LIST_PAGE);
        }
    }
    let ids = match imports {
        Imports::One => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Imports::Several => Encoding::DELTA_BYTE_ARRAY,
    };
    // This encoding writes only the difference of neighbours that share a beginning.
    let neighbours = Encoding::DELTA_BYTE_ARRAY;
    let encodings: &[(&str, Encoding)] = match table {
        Table::Stacks => &[
            ("stack_id", ids),
            ("function_id", neighbours),
            ("function", neighbours),
        ],
        Table::Functions => &[("function_id", ids), ("name", neighbours)],
        _ => &[],
    };
    for (column, encoding) in encodings {
        let path = ColumnPath::from(*column);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, *encoding);
    }
    ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true)
}

/// Writes the rows of several files in parts, each in the order of [`ordered`].
pub(crate) struct Parts<W: Write + Send> {
    table: Table,
    writer: ArrowWriter<W>,
    waiting: Vec<RecordBatch>,
    bytes: usize,
}

impl<W: Write + Send> Parts<W> {
    /// Makes a file without rows.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn new(table: Table, out: W) -> Result<Parts<W>, StoreError> {
        let options = options(table, Imports::Several);
        Ok(Parts {
            table,
            writer: ArrowWriter::try_new_with_options(out, table.schema(), options)?,
            waiting: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// The rows have other columns than the table, or can't be written.
    pub(crate) fn write(&mut self, batch: RecordBatch) -> Result<(), StoreError> {
        if !matches!(self.table, Table::Stacks | Table::Functions) {
            return Ok(self.writer.write(&batch)?);
        }
        self.bytes += batch.get_array_memory_size();
        self.waiting.push(batch);
        match self.bytes < ORDERED_BYTES {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let rows = concat_batches(&self.table.schema(), &self.waiting)?;
        self.waiting.clear();
        self.bytes = 0;
        Ok(self.writer.write(&ordered(self.table, rows)?)?)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// As [`Parts::write`].
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        if !self.waiting.is_empty() {
            self.flush()?;
        }
        self.writer.close()?;
        Ok(())
    }
}

/// Returns the rows in the order in which similar ones are neighbours: stacks by the names of their functions, innermost
/// first, and functions of a module by name.
///
/// # Errors
/// The rows can't be put in order.
pub(crate) fn ordered(table: Table, batch: RecordBatch) -> Result<RecordBatch, StoreError> {
    let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
    let mut order: Vec<u32> = (0..rows).collect();
    let column = |name| batch.column_by_name(name);
    let texts = |name| column(name).and_then(|column| column.as_string_opt::<i32>());
    match table {
        Table::Stacks => {
            let names = column("frames").and_then(|frames| ranks(frames));
            let Some((names, ids)) = names.zip(texts("stack_id")) else {
                return Ok(batch);
            };
            let key = |row: u32| (&names[row as usize], ids.value(row as usize));
            order.sort_by(|one, other| key(*one).cmp(&key(*other)));
        }
        Table::Functions => {
            let names = texts("module_id").zip(texts("name"));
            let Some(((modules, names), ids)) = names.zip(texts("function_id")) else {
                return Ok(batch);
            };
            let key = |row: u32| {
                let row = row as usize;
                (modules.value(row), names.value(row), ids.value(row))
            };
            order.sort_by(|one, other| key(*one).cmp(&key(*other)));
        }
        _ => return Ok(batch),
    }
    Ok(take_record_batch(&batch, &UInt32Array::from(order))?)
}

/// Returns for each list the places of its texts in their alphabetical order.
fn ranks(lists: &ArrayRef) -> Option<Vec<Vec<u32>>> {
    let lists = lists.as_list_opt::<i32>()?;
    let texts: &StringArray = lists.values().as_string_opt::<i32>()?;
    let distinct: BTreeSet<&str> = texts.iter().flatten().collect();
    let places: HashMap<&str, u32> = distinct.into_iter().zip(0..).collect();
    let each = (0..texts.len()).map(|place| places.get(texts.value(place)).copied());
    let each: Vec<u32> = each.map(Option::unwrap_or_default).collect();
    let of_list = |range: &[i32]| each[range[0] as usize..range[1] as usize].to_vec();
    Some(lists.value_offsets().windows(2).map(of_list).collect())
}
