//! Columns of values, which become Parquet. Each row also goes into the hash of the import.

use crate::error::StoreError;
use crate::ids::Hasher;
use crate::layout::{self, Imports};
use crate::schema::{Table, element};
use arrow::array::{
    ArrayRef, Float64Builder, Int64Builder, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use parquet::arrow::ArrowWriter;
use std::sync::Arc;

/// A column while it grows.
pub(crate) enum Column {
    Text(StringBuilder),
    Integer(Int64Builder),
    Double(Float64Builder),
    Texts(ListBuilder<StringBuilder>),
}

/// A value of a row.
pub(crate) enum Value<'a> {
    Text(&'a str),
    OptionalText(Option<&'a str>),
    Integer(i64),
    OptionalInteger(Option<i64>),
    Double(f64),
    OptionalDouble(Option<f64>),
    Texts(&'a [&'a str]),
}

/// The rows of a table without their first column, the id of the import, which is known last.
pub(crate) struct Rows {
    table: Table,
    columns: Vec<Column>,
    hash: Hasher,
    len: usize,
}

impl Rows {
    /// Makes a table without rows.
    pub(crate) fn new(table: Table) -> Rows {
        let schema = table.schema();
        let columns = schema.fields().iter().skip(1).map(|field| {
            use arrow::datatypes::DataType;
            match field.data_type() {
                DataType::Int64 => Column::Integer(Int64Builder::new()),
                DataType::Float64 => Column::Double(Float64Builder::new()),
                DataType::List(_) => {
                    Column::Texts(ListBuilder::new(StringBuilder::new()).with_field(element()))
                }
                _ => Column::Text(StringBuilder::new()),
            }
        });
        Rows {
            table,
            columns: columns.collect(),
            hash: Hasher::new(table.folder()),
            len: 0,
        }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a row: the values of all columns but the first.
    pub(crate) fn push(&mut self, values: &[Value<'_>]) {
        debug_assert_eq!(values.len(), self.columns.len());
        for (column, value) in self.columns.iter_mut().zip(values) {
            match (column, value) {
                (Column::Text(column), Value::Text(text)) => {
                    column.append_value(text);
                    self.hash.text(text);
                }
                (Column::Text(column), Value::OptionalText(text)) => {
                    column.append_option(*text);
                    self.hash.optional(*text);
                }
                (Column::Integer(column), Value::Integer(number)) => {
                    column.append_value(*number);
                    self.hash.number(*number);
                }
                (Column::Integer(column), Value::OptionalInteger(number)) => {
                    column.append_option(*number);
                    self.hash.optional_number(*number);
                }
                (Column::Double(column), Value::Double(number)) => {
                    column.append_value(*number);
                    self.hash.bytes(&number.to_bits().to_le_bytes());
                }
                (Column::Double(column), Value::OptionalDouble(number)) => {
                    column.append_option(*number);
                    let bits = number.map(|number| number.to_bits().cast_signed());
                    self.hash.optional_number(bits);
                }
                (Column::Texts(column), Value::Texts(texts)) => {
                    self.hash
                        .number(i64::try_from(texts.len()).unwrap_or(i64::MAX));
                    for text in *texts {
                        column.values().append_value(text);
                        self.hash.text(text);
                    }
                    column.append(true);
                }
                _ => debug_assert!(false, "a value of another type than its column"),
            }
        }
        self.len += 1;
    }

    /// Returns the table, and the hash of all its rows.
    pub(crate) fn digest(&self) -> (Table, String) {
        (self.table, self.hash.clone().id())
    }

    /// Returns the rows as a Parquet file, whose first column holds `first` in each row.
    ///
    /// # Errors
    /// The rows are too many for a table, or a value is missing where there must be one.
    pub(crate) fn encode(self, first: &str) -> Result<Vec<u8>, StoreError> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len() + 1);
        arrays.push(Arc::new(StringArray::from_iter_values(
            std::iter::repeat_n(first, self.len),
        )));
        for column in self.columns {
            arrays.push(match column {
                Column::Text(mut column) => Arc::new(column.finish()),
                Column::Integer(mut column) => Arc::new(column.finish()),
                Column::Double(mut column) => Arc::new(column.finish()),
                Column::Texts(mut column) => Arc::new(column.finish()),
            });
        }
        let batch = RecordBatch::try_new(self.table.schema(), arrays)?;
        let batch = layout::ordered(self.table, batch)?;
        let mut bytes = Vec::new();
        let options = layout::options(self.table, Imports::One);
        let mut writer = ArrowWriter::try_new_with_options(&mut bytes, batch.schema(), options)?;
        writer.write(&batch)?;
        writer.close()?;
        Ok(bytes)
    }
}
