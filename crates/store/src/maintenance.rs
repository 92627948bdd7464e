//! `gc` and `verify`: the objects of a store that belong to no profile, and those that are damaged.

use crate::error::StoreError;
use crate::ids;
use crate::profile_row::{RowObject, StoredProfile, object_of};
use crate::schema::{TEMPORARY, Table};
use crate::storage::Listed;
use crate::store::Store;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

/// The time after which `gc` lists the store again.
const LISTING_HOLDS: Duration = Duration::from_secs(600);

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
    /// The number of calls of whole traces.
    pub calls: i64,
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
        let mut collected = Collected::default();
        // Each round deletes for a bounded time after its listing.
        while !self.collect(grace, dry_run, &mut collected)? {}
        Ok(collected)
    }

    /// Lists the store and deletes what belongs to no profile. Returns false if that took so long that the listing may
    /// be out of date: then some orphans are left.
    fn collect(
        &self,
        grace: Duration,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<bool, StoreError> {
        let start = Instant::now();
        // Objects are listed before profiles: an object of a profile that was added in between has its profile then.
        let objects = self.row_objects()?;
        let rows = self.storage.list(Table::Profiles.folder())?;
        let profiles = self.profiles()?;
        let replaced = replacements(&rows, &profiles);
        collected.kept = Orphans::default();
        let now = SystemTime::now();
        for object in orphans(&objects, &profiles) {
            // Readers may still be at work on objects whose rows have moved into merged ones.
            let since = replaced.get(folder_of(&object.name));
            let since = since.map_or(object.written, |since| object.written.max(*since));
            // Clocks of servers may run ahead.
            let age = now.duration_since(since).unwrap_or_default();
            if age < grace {
                collected.kept.add(object);
                continue;
            }
            if !dry_run {
                if start.elapsed() > LISTING_HOLDS {
                    return Ok(false);
                }
                // A writer may have come back and written it again.
                match self.storage.state(&object.name)? {
                    None => continue,
                    Some(state) if state.written != object.written => {
                        collected.kept.add(object);
                        continue;
                    }
                    Some(_) => self.storage.delete(&object.name)?,
                }
            }
            collected.deleted.add(object);
        }
        Ok(true)
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
        // Several profiles may share an object.
        let mut owners: BTreeMap<&str, Vec<(usize, &RowObject)>> = BTreeMap::new();
        for (place, profile) in profiles.iter().enumerate() {
            for object in &profile.objects {
                owners
                    .entry(&object.name)
                    .or_default()
                    .push((place, object));
            }
        }
        let mut broken = HashSet::new();
        for (name, owners) in owners {
            let known = |place: usize| &profiles[place];
            let found: Vec<(Option<usize>, String)> = match self.storage.get(name) {
                Ok(Some(bytes)) => check_object(&owners, &known, bytes),
                Ok(None) => {
                    let row = object_of(&profiles[owners[0].0].profile_id);
                    vec![(None, format!("is missing; {row} names it"))]
                }
                Err(error) => vec![(None, error.to_string())],
            };
            for (place, problem) in found {
                match place {
                    Some(place) => broken.extend([place]),
                    None => broken.extend(owners.iter().map(|(place, _)| *place)),
                }
                verified.problems.push((name.to_owned(), problem));
            }
        }
        for (place, profile) in profiles.iter().enumerate() {
            if !broken.contains(&place) {
                verified.whole += 1;
                verified.samples = verified.samples.saturating_add(profile.samples());
                verified.calls = verified.calls.saturating_add(profile.calls);
            }
        }
        for object in orphans(&objects, &profiles) {
            verified.orphans.add(object);
        }
        Ok(verified)
    }

    /// Returns all objects but those of profiles' own rows.
    fn row_objects(&self) -> Result<Vec<Listed>, StoreError> {
        let mut objects = self.storage.list(TEMPORARY)?;
        for table in Table::OF_ROWS {
            objects.extend(self.storage.list(table.folder())?);
        }
        let empty = Table::OF_ROWS.map(Table::empty_object);
        objects.retain(|object| !empty.contains(&object.name));
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

/// Returns the folder of an object in that of its table: its date, service and host.
fn folder_of(name: &str) -> &str {
    let inside = name.split_once('/').map_or("", |(_, inside)| inside);
    inside.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns for each folder with merged profiles the last time at which a profile's row there was replaced.
fn replacements(rows: &[Listed], profiles: &[StoredProfile]) -> HashMap<String, SystemTime> {
    let written: HashMap<&str, SystemTime> =
        rows.iter().map(|row| (&*row.name, row.written)).collect();
    let mut replaced: HashMap<String, SystemTime> = HashMap::new();
    for profile in profiles.iter().filter(|profile| profile.is_merged()) {
        let Some(time) = written.get(&*object_of(&profile.profile_id)) else {
            continue;
        };
        let last = replaced.entry(profile.labels.folder()).or_insert(*time);
        *last = (*last).max(*time);
    }
    replaced
}

/// Returns what is wrong with an object that some profiles name: for one of them, or for all.
fn check_object<'p>(
    owners: &[(usize, &RowObject)],
    known: &impl Fn(usize) -> &'p StoredProfile,
    bytes: Vec<u8>,
) -> Vec<(Option<usize>, String)> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let Some((_, object)) = owners.first() else {
        return Vec::new();
    };
    if size != object.bytes {
        let problem = format!("has {size} bytes instead of {}", object.bytes);
        return vec![(None, problem)];
    }
    if ids::sha256(&bytes) != object.sha256 {
        return vec![(None, "has other bytes than were written".to_owned())];
    }
    let parts = match sums(bytes) {
        Ok(parts) => parts,
        Err(error) => return vec![(None, error.to_string())],
    };
    let mut problems = Vec::new();
    for (place, object) in owners {
        let profile = known(*place);
        let none = PartSums::default();
        let part = parts.get(&profile.import_id).unwrap_or(&none);
        if (object.bytes, &object.sha256) != (owners[0].1.bytes, &owners[0].1.sha256) {
            problems.push((
                Some(*place),
                "is another one for another profile".to_owned(),
            ));
        } else if part.rows != object.rows {
            let problem = format!(
                "has {} rows instead of {} of {}",
                part.rows, object.rows, profile.profile_id
            );
            problems.push((Some(*place), problem));
        } else {
            let table = object.name.split('/').next().unwrap_or_default();
            let problem = part.problem(table, profile);
            problems.extend(problem.map(|problem| (Some(*place), problem)));
        }
    }
    problems
}

/// The sums of an object's rows of one import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartSums {
    pub rows: u64,
    /// The sums of samples and of weights of each event, if the rows are samples.
    events: BTreeMap<String, (i64, i64)>,
    /// The number of calls, if the rows are calls.
    calls: i64,
}

impl PartSums {
    /// Returns what differs from the profile's totals, if anything does.
    pub(crate) fn problem(&self, table: &str, profile: &StoredProfile) -> Option<String> {
        if table == Table::Samples.folder() {
            let mut known: BTreeMap<String, (i64, i64)> = BTreeMap::new();
            for total in profile.totals.iter().filter(|total| total.samples > 0) {
                known.insert(total.event.clone(), (total.samples, total.weight));
            }
            if self.events != known {
                return Some("its sums are not those of the profile".to_owned());
            }
        }
        if table == Table::Calls.folder() && self.calls != profile.calls {
            return Some("its number of calls is not that of the profile".to_owned());
        }
        None
    }
}

/// Returns the sums of a Parquet file's rows, by the id of the import.
pub(crate) fn sums(bytes: Vec<u8>) -> Result<HashMap<String, PartSums>, StoreError> {
    let mut parts: HashMap<String, PartSums> = HashMap::new();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))?.build()?;
    for batch in reader {
        let batch = batch?;
        let text = |name| {
            let column = batch.column_by_name(name);
            column.and_then(|array| array.as_string_opt::<i32>())
        };
        let number = |name| {
            let column = batch.column_by_name(name);
            column.and_then(|array| array.as_primitive_opt::<Int64Type>())
        };
        let Some(imports) = text("import_id") else {
            continue;
        };
        let samples = text("event").zip(number("samples")).zip(number("weight"));
        let calls = number("calls");
        for row in 0..batch.num_rows() {
            let import = imports.value(row);
            let part = match parts.get_mut(import) {
                Some(part) => part,
                None => parts.entry(import.to_owned()).or_default(),
            };
            part.rows += 1;
            if let Some(((event, samples), weight)) = samples {
                let event = event.value(row);
                let sum = match part.events.get_mut(event) {
                    Some(sum) => sum,
                    None => part.events.entry(event.to_owned()).or_default(),
                };
                sum.0 = sum.0.saturating_add(samples.value(row));
                sum.1 = sum.1.saturating_add(weight.value(row));
            }
            if let Some(calls) = calls {
                part.calls = part.calls.saturating_add(calls.value(row));
            }
        }
    }
    Ok(parts)
}
