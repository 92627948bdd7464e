//! The row of a profile, whose file makes the profile visible.

use crate::columns::{Rows, Value};
use crate::content::{Content, EventTotal, Kind};
use crate::error::StoreError;
use crate::labels::Labels;
use crate::schema::{Table, VERSION};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::{Deserialize, Serialize};

/// An object that holds rows of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowObject {
    /// The name, relative to the store.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// The number of rows.
    pub rows: u64,
}

/// A profile of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProfile {
    /// Whether it is a recording of samples or a trace of calls.
    pub kind: Kind,
    /// The id: the first half of the SHA-256 of the recording's bytes.
    pub profile_id: String,
    /// The id of the import: a hash of the recording, its labels and all its rows.
    pub import_id: String,
    /// The labels.
    pub labels: Labels,
    /// Nanoseconds since 1970 of the first sample, where the recording states it.
    pub start_ns: Option<i64>,
    /// Nanoseconds from the first sample to the last one, where samples state their time.
    pub duration_ns: Option<i64>,
    /// The command that recorded.
    pub command: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The machine's architecture.
    pub arch: Option<String>,
    /// The CPU's name.
    pub cpu_model: Option<String>,
    /// The recording's size in bytes.
    pub file_bytes: i64,
    /// Losses and doubts of the recording, a sentence a line.
    pub warnings: Option<String>,
    /// The sums of each event.
    pub totals: Vec<EventTotal>,
    /// The number of traced calls.
    pub calls: i64,
    /// The objects that hold the profile's rows.
    pub objects: Vec<RowObject>,
}

/// Returns the name of the object that makes a profile visible.
pub(crate) fn object_of(profile_id: &str) -> String {
    format!("{}/{profile_id}.parquet", Table::Profiles.folder())
}

impl StoredProfile {
    /// Makes the profile of a content whose rows lie in these objects.
    pub(crate) fn new(
        content: &Content,
        import_id: String,
        objects: Vec<RowObject>,
    ) -> StoredProfile {
        StoredProfile {
            kind: content.kind,
            profile_id: content.profile_id.clone(),
            import_id,
            labels: content.labels.clone(),
            start_ns: content.start_ns,
            duration_ns: content.duration_ns,
            command: content.command.clone(),
            kernel: content.kernel.clone(),
            arch: content.arch.clone(),
            cpu_model: content.cpu_model.clone(),
            file_bytes: content.file_bytes,
            warnings: Some(content.warnings.join("\n")).filter(|warnings| !warnings.is_empty()),
            totals: content.totals.clone(),
            calls: content.calls,
            objects,
        }
    }

    /// Returns the number of samples of all events.
    pub fn samples(&self) -> i64 {
        let each = self.totals.iter().map(|total| total.samples);
        each.fold(0, i64::saturating_add)
    }

    /// Returns the sizes of the profile's objects in bytes, summed, without the object of the profile's own row.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    /// Returns whether the profile's rows lie in objects with those of other profiles.
    pub fn is_merged(&self) -> bool {
        self.import_id.contains('.')
    }

    /// Returns the id of the import as it was before rows were merged.
    pub(crate) fn own_import(&self) -> &str {
        let own = self.import_id.split_once('.');
        own.map_or(&self.import_id, |(own, _)| own)
    }

    /// Returns the row as a Parquet file.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let mut rows = Rows::new(Table::Profiles);
        let json = |result: serde_json::Result<String>| {
            result.map_err(|error| self.broken(error.to_string()))
        };
        rows.push(&[
            Value::Text(&self.import_id),
            Value::Text(&self.labels.date),
            Value::Text(&self.labels.service),
            Value::Text(&self.labels.host),
            Value::OptionalInteger(self.start_ns),
            Value::OptionalInteger(self.duration_ns),
            Value::Integer(self.samples()),
            Value::OptionalText(self.command.as_deref()),
            Value::OptionalText(self.kernel.as_deref()),
            Value::OptionalText(self.arch.as_deref()),
            Value::OptionalText(self.cpu_model.as_deref()),
            Value::Integer(self.file_bytes),
            Value::OptionalText(self.warnings.as_deref()),
            Value::Text(&json(serde_json::to_string(&self.totals))?),
            Value::Text(&json(serde_json::to_string(&self.objects))?),
            Value::Integer(VERSION),
            Value::Text(self.kind.word()),
            Value::Integer(self.calls),
        ]);
        rows.encode(&self.profile_id)
    }

    fn broken(&self, reason: String) -> StoreError {
        StoreError::Object {
            object: object_of(&self.profile_id),
            reason,
        }
    }

    /// Reads the row from an object.
    ///
    /// # Errors
    /// The bytes are no Parquet file, or not that of one profile.
    pub(crate) fn decode(name: &str, bytes: Vec<u8>) -> Result<StoredProfile, StoreError> {
        let broken = |reason: String| StoreError::Object {
            object: name.to_owned(),
            reason,
        };
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))
            .and_then(ParquetRecordBatchReaderBuilder::build)
            .map_err(|error| broken(error.to_string()))?;
        let batches: Vec<RecordBatch> = reader
            .collect::<Result<_, _>>()
            .map_err(|error| broken(error.to_string()))?;
        let [batch] = &*batches else {
            return Err(broken("does not hold one row".to_owned()));
        };
        if batch.num_rows() != 1 {
            return Err(broken("does not hold one row".to_owned()));
        }
        let row = Row { batch, name };
        let version = row.integer("schema_version")?;
        if version != VERSION {
            return Err(StoreError::Version {
                place: name.to_owned(),
                found: version,
                known: VERSION,
            });
        }
        let kind = row.text("kind")?;
        let profile = StoredProfile {
            kind: Kind::of_word(&kind).ok_or_else(|| broken(format!("has the kind {kind}")))?,
            profile_id: row.text("profile_id")?,
            import_id: row.text("import_id")?,
            labels: Labels {
                date: row.text("date")?,
                service: row.text("service")?,
                host: row.text("host")?,
            },
            start_ns: row.optional_integer("start_ns")?,
            duration_ns: row.optional_integer("duration_ns")?,
            command: row.optional_text("command")?,
            kernel: row.optional_text("kernel")?,
            arch: row.optional_text("arch")?,
            cpu_model: row.optional_text("cpu_model")?,
            file_bytes: row.integer("file_bytes")?,
            warnings: row.optional_text("warnings")?,
            totals: serde_json::from_str(&row.text("totals")?)
                .map_err(|error| broken(error.to_string()))?,
            calls: row.integer("calls")?,
            objects: serde_json::from_str(&row.text("objects")?)
                .map_err(|error| broken(error.to_string()))?,
        };
        if object_of(&profile.profile_id) != name {
            return Err(broken(format!("holds the profile {}", profile.profile_id)));
        }
        Ok(profile)
    }
}

/// The only row of a batch.
struct Row<'a> {
    batch: &'a RecordBatch,
    name: &'a str,
}

impl Row<'_> {
    fn missing(&self, column: &str) -> StoreError {
        StoreError::Object {
            object: self.name.to_owned(),
            reason: format!("has no {column}"),
        }
    }

    fn optional_text(&self, column: &str) -> Result<Option<String>, StoreError> {
        let array = self.batch.column_by_name(column);
        let array = array.and_then(|array| array.as_string_opt::<i32>());
        let array = array.ok_or_else(|| self.missing(column))?;
        Ok(array.is_valid(0).then(|| array.value(0).to_owned()))
    }

    fn text(&self, column: &str) -> Result<String, StoreError> {
        self.optional_text(column)?
            .ok_or_else(|| self.missing(column))
    }

    fn optional_integer(&self, column: &str) -> Result<Option<i64>, StoreError> {
        let array = self.batch.column_by_name(column);
        let array = array.and_then(|array| array.as_primitive_opt::<Int64Type>());
        let array = array.ok_or_else(|| self.missing(column))?;
        Ok(array.is_valid(0).then(|| array.value(0)))
    }

    fn integer(&self, column: &str) -> Result<i64, StoreError> {
        self.optional_integer(column)?
            .ok_or_else(|| self.missing(column))
    }
}
