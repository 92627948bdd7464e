//! `gc` and `verify`: the objects of a store that belong to no profile, and those that are damaged.

use crate::error::StoreError;
use crate::ids;
use crate::profile_row::{RowObject, StoredProfile, object_of};
use crate::schema::{TEMPORARY, Table};
use crate::storage::Listed;
use crate::store::Store;
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

/// Objects without a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The names of the objects.
    pub names: Vec<String>,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

/// The result of [`Store::gc`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The objects that were deleted, or would be.
    pub deleted: Orphans,
    /// The objects that are too young: an `add` that still runs may have written them.
    pub kept: Orphans,
}

/// The result of [`Store::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The number of profiles that are whole.
    pub whole: u64,
    /// The number of samples of whole profiles.
    pub samples: i64,
    /// The damage: an object and a sentence about it each.
    pub problems: Vec<(String, String)>,
    /// Objects without a profile, which are no damage.
    pub orphans: Orphans,
}

impl Orphans {
    fn add(&mut self, object: &Listed) {
        self.names.push(object.name.clone());
        self.bytes += object.bytes;
    }
}

impl Store {
    /// Deletes the objects that belong to no profile, if they were last written longer than `grace` ago. Interrupted
    /// `add`s leave such objects. With `dry_run` nothing is deleted.
    ///
    /// # Errors
    /// The store can't be read, or a profile's row is damaged: it can't tell which objects are its own, so nothing is
    /// deleted.
    pub fn gc(&self, grace: Duration, dry_run: bool) -> Result<Collected, StoreError> {
        // Objects are listed before profiles: an object of a profile that was added in between has its profile then.
        let objects = self.row_objects()?;
        let profiles = self.profiles()?;
        let mut collected = Collected::default();
        let now = SystemTime::now();
        for object in orphans(&objects, &profiles) {
            // Clocks of servers may run ahead.
            let age = now.duration_since(object.written).unwrap_or_default();
            if age < grace {
                collected.kept.add(object);
                continue;
            }
            if !dry_run {
                self.storage.delete(&object.name)?;
            }
            collected.deleted.add(object);
        }
        Ok(collected)
    }

    /// Reads every object of every profile, and compares it with what the profile's row says: size, hash, number of
    /// rows, and the sums of each event.
    ///
    /// # Errors
    /// The store can't be listed. Damage is no error.
    pub fn verify(&self) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        let objects = self.row_objects()?;
        let mut profiles = Vec::new();
        for object in self.storage.list(Table::Profiles.folder())? {
            let read = self.storage.get(&object.name);
            let decoded = read.and_then(|bytes| {
                let decode = |bytes| StoredProfile::decode(&object.name, bytes);
                bytes.map(decode).transpose()
            });
            match decoded {
                Ok(Some(profile)) => profiles.push(profile),
                Ok(None) => {}
                Err(error) => verified.problems.push((object.name, reason(error))),
            }
        }
        for profile in &profiles {
            let before = verified.problems.len();
            self.verify_profile(profile, &mut verified.problems);
            if verified.problems.len() == before {
                verified.whole += 1;
                verified.samples = verified.samples.saturating_add(profile.samples());
            }
        }
        for object in orphans(&objects, &profiles) {
            verified.orphans.add(object);
        }
        Ok(verified)
    }

    fn verify_profile(&self, profile: &StoredProfile, problems: &mut Vec<(String, String)>) {
        for object in &profile.objects {
            let found = match self.storage.get(&object.name) {
                Ok(Some(bytes)) => check_object(object, profile, bytes),
                Ok(None) => Some(format!(
                    "is missing; {} names it",
                    object_of(&profile.profile_id)
                )),
                Err(error) => Some(error.to_string()),
            };
            problems.extend(found.map(|problem| (object.name.clone(), problem)));
        }
    }

    /// Returns all objects but those of profiles' own rows.
    fn row_objects(&self) -> Result<Vec<Listed>, StoreError> {
        let mut objects = self.storage.list(TEMPORARY)?;
        for table in Table::OF_ROWS {
            objects.extend(self.storage.list(table.folder())?);
        }
        Ok(objects)
    }
}

/// Returns an object's error without its name.
fn reason(error: StoreError) -> String {
    match error {
        StoreError::Object { reason, .. } => reason,
        error => error.to_string(),
    }
}

/// Returns the objects that no profile names.
fn orphans<'a>(
    objects: &'a [Listed],
    profiles: &[StoredProfile],
) -> impl Iterator<Item = &'a Listed> {
    let named: HashSet<String> = profiles
        .iter()
        .flat_map(|profile| &profile.objects)
        .map(|object| object.name.clone())
        .collect();
    objects
        .iter()
        .filter(move |object| !named.contains(&object.name))
}

/// Returns what is wrong with an object, if anything is.
fn check_object(object: &RowObject, profile: &StoredProfile, bytes: Vec<u8>) -> Option<String> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size != object.bytes {
        return Some(format!("has {size} bytes instead of {}", object.bytes));
    }
    if ids::sha256(&bytes) != object.sha256 {
        return Some("has other bytes than were written".to_owned());
    }
    match sums(bytes) {
        Err(error) => Some(error.to_string()),
        Ok((rows, _)) if rows != object.rows => {
            Some(format!("has {rows} rows instead of {}", object.rows))
        }
        Ok((_, sums)) if object.name.starts_with(Table::Samples.folder()) => {
            let mut known: BTreeMap<String, (i64, i64)> = BTreeMap::new();
            for total in profile.totals.iter().filter(|total| total.samples > 0) {
                known.insert(total.event.clone(), (total.samples, total.weight));
            }
            (sums != known).then(|| "its sums are not those of the profile".to_owned())
        }
        Ok(_) => None,
    }
}

/// Returns the number of rows of a Parquet file and, of samples, the sums of samples and weights for each event.
#[allow(clippy::type_complexity)]
fn sums(bytes: Vec<u8>) -> Result<(u64, BTreeMap<String, (i64, i64)>), StoreError> {
    let mut rows = 0;
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))?.build()?;
    for batch in reader {
        let batch = batch?;
        rows += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        let column = |name| batch.column_by_name(name);
        let event = column("event").and_then(|array| array.as_string_opt::<i32>());
        let number = |name| column(name).and_then(|array| array.as_primitive_opt::<Int64Type>());
        let (Some(event), Some(samples), Some(weight)) =
            (event, number("samples"), number("weight"))
        else {
            continue;
        };
        for row in 0..event.len() {
            let sum = sums.entry(event.value(row).to_owned()).or_default();
            sum.0 = sum.0.saturating_add(samples.value(row));
            sum.1 = sum.1.saturating_add(weight.value(row));
        }
    }
    Ok((rows, sums))
}
