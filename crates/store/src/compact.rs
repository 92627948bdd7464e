//! `compact`: the rows of small profiles of one day, service and host move into larger objects.
//!
//! The rows of a profile carry the id of its import, and views join with the profile's row by it. Merged objects hold the
//! same rows with new ids of imports, so no view shows them until a profile's row names the new id. That row is replaced
//! as a whole, so each profile's rows count once at every moment. The old objects then belong to no profile.

use crate::error::StoreError;
use crate::ids::{self, Hasher};
use crate::layout::{LAYOUT, Parts};
use crate::maintenance::{PartSums, sums};
use crate::profile_row::{RowObject, StoredProfile, object_of};
use crate::schema::{Table, VERSION};
use crate::store::{FRESH, Store};
use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::filter_record_batch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The longest time for which a compaction waits before profiles name the merged objects.
pub const LONGEST_SETTLE: Duration = Duration::from_secs(1800);

/// The time for which merged objects are written before the profiles of a round name them. With the wait it is less than
/// [`FRESH`].
const ROUND: Duration = Duration::from_secs(1200);

/// The options of [`Store::compact`].
#[derive(Clone, Copy, Debug)]
pub struct CompactOptions {
    /// The size in bytes up to which the objects of profiles are merged.
    pub target_bytes: u64,
    /// The time between the writing of merged objects and the first profile that names them. Queries of other engines
    /// that take less than this see each profile's rows once, whenever they began. At most [`LONGEST_SETTLE`].
    pub settle: Duration,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// The result of [`Store::compact`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// The number of groups of profiles whose rows were merged, or would be.
    pub groups: u64,
    /// The number of profiles in them.
    pub profiles: u64,
    /// The objects of the profiles before: their number, and the sum of their sizes in bytes.
    pub before: (u64, u64),
    /// The merged objects; none in a dry run.
    pub after: (u64, u64),
    /// The profiles that stay as they are because they are damaged or changed meanwhile: their ids, with a reason each.
    pub skipped: Vec<(String, String)>,
}

/// Profiles that share their objects: a single one, or several that were merged before.
struct Unit {
    profiles: Vec<StoredProfile>,
    bytes: u64,
    is_merged: bool,
}

/// A group of profiles and their merged objects.
struct Group {
    /// Each profile with its row as it will be.
    profiles: Vec<(StoredProfile, StoredProfile)>,
    objects: Vec<RowObject>,
    /// The time before the first of them was written.
    began: SystemTime,
}

impl Store {
    /// Merges the rows of small profiles that have their day, service and host in common.
    ///
    /// `waits` is called before the time [`CompactOptions::settle`] passes.
    ///
    /// # Errors
    /// The store can't be read or written, or a profile's row is damaged. A damaged object is no error: its profile
    /// stays as it is.
    pub fn compact(
        &self,
        options: CompactOptions,
        mut waits: impl FnMut(&Compacted),
    ) -> Result<Compacted, StoreError> {
        let mut compacted = Compacted::default();
        let mut partitions: BTreeMap<String, Vec<StoredProfile>> = BTreeMap::new();
        for profile in self.profiles()? {
            let partition = partitions.entry(profile.labels.folder()).or_default();
            partition.push(profile);
        }
        let mut chosen_groups = Vec::new();
        for profiles in partitions.into_values() {
            chosen_groups.extend(chosen(units(profiles), options.target_bytes));
        }
        if options.dry_run {
            for units in &chosen_groups {
                let (objects, bytes) = objects_of(units);
                let profiles = units.iter().map(|unit| number(unit.profiles.len()));
                compacted.groups += 1;
                compacted.profiles += profiles.sum::<u64>();
                compacted.before.0 += objects;
                compacted.before.1 += bytes;
            }
            return Ok(compacted);
        }
        // Objects that wait for others too long would be too old at last.
        let mut left = chosen_groups.into_iter().peekable();
        while left.peek().is_some() {
            let began = Instant::now();
            let mut groups = Vec::new();
            while began.elapsed() < ROUND
                && let Some(units) = left.next()
            {
                groups.extend(self.merge(units, &mut compacted)?);
            }
            if groups.is_empty() {
                continue;
            }
            waits(&compacted);
            std::thread::sleep(options.settle.min(LONGEST_SETTLE));
            for group in groups {
                self.switch(group, &mut compacted)?;
            }
        }
        Ok(compacted)
    }

    /// Writes the merged objects of some units, which no view shows yet. Returns `None` where too few are whole.
    fn merge(
        &self,
        units: Vec<Unit>,
        compacted: &mut Compacted,
    ) -> Result<Option<Group>, StoreError> {
        let mut whole = Vec::new();
        for unit in units {
            match self.load(&unit)? {
                Ok(objects) => whole.push((unit, objects)),
                Err(problem) => {
                    let ids = unit.profiles.iter().map(|profile| &profile.profile_id);
                    compacted
                        .skipped
                        .extend(ids.map(|id| (id.clone(), problem.clone())));
                }
            }
        }
        if whole.len() < 2 {
            return Ok(None);
        }
        let mut hash = Hasher::new("merge");
        hash.number(VERSION);
        hash.number(LAYOUT);
        let imports = whole.iter().flat_map(|(unit, _)| &unit.profiles);
        imports.for_each(|profile| hash.text(&profile.import_id));
        let group_id = hash.id();
        // By id of the import as it is: the id as it will be.
        let mut renamed = HashMap::new();
        let mut profiles = Vec::new();
        let mut before = BTreeMap::new();
        for profile in whole.iter().flat_map(|(unit, _)| &unit.profiles) {
            let mut merged = profile.clone();
            merged.import_id = format!("{}.{}", profile.own_import(), &group_id[..12]);
            merged.objects = Vec::new();
            renamed.insert(profile.import_id.clone(), merged.import_id.clone());
            for object in &profile.objects {
                before.insert(object.name.clone(), object.bytes);
            }
            profiles.push((profile.clone(), merged));
        }
        let folder = profiles[0].0.labels.folder();
        let mut objects = Vec::new();
        let began = SystemTime::now();
        for table in Table::OF_ROWS {
            let prefix = format!("{}/", table.folder());
            let parts: Vec<&Vec<u8>> = whole
                .iter()
                .flat_map(|(_, objects)| objects)
                .filter(|(name, _)| name.starts_with(&prefix))
                .map(|(_, bytes)| bytes)
                .collect();
            if parts.is_empty() {
                continue;
            }
            let bytes = merged_rows(table, &parts, &renamed)?;
            let parts = sums(bytes.clone())?;
            let object = RowObject {
                name: format!("{prefix}{folder}/merged-{group_id}.parquet"),
                bytes: number(bytes.len()),
                sha256: ids::sha256(&bytes),
                rows: 0,
            };
            for (was, merged) in &mut profiles {
                let own = was
                    .objects
                    .iter()
                    .find(|object| object.name.starts_with(&prefix));
                let sums = parts.get(&merged.import_id);
                let rows = sums.map_or(0, |sums| sums.rows);
                // Merging must not lose or double anything.
                if rows != own.map_or(0, |object| object.rows) {
                    return Err(StoreError::Total {
                        event: format!("{}, {}", was.profile_id, table.folder()),
                        value: "rows",
                        written: rows,
                        total: own.map_or(0, |object| object.rows),
                    });
                }
                if let Some(sums) = sums
                    && let Some(problem) = PartSums::problem(sums, table.folder(), was)
                {
                    return Err(StoreError::Object {
                        object: object.name.clone(),
                        reason: problem,
                    });
                }
                if rows > 0 {
                    let own = RowObject {
                        rows,
                        ..object.clone()
                    };
                    merged.objects.push(own);
                }
            }
            self.storage.put(&object.name, &bytes)?;
            objects.push(object);
        }
        compacted.groups += 1;
        compacted.profiles += number(profiles.len());
        compacted.before.0 += number(before.len());
        compacted.before.1 += before.values().sum::<u64>();
        compacted.after.0 += number(objects.len());
        compacted.after.1 += objects.iter().map(|object| object.bytes).sum::<u64>();
        Ok(Some(Group {
            profiles,
            objects,
            began,
        }))
    }

    /// Reads the objects of a unit. The inner error says what is wrong with one of them.
    #[allow(clippy::type_complexity)]
    fn load(&self, unit: &Unit) -> Result<Result<Vec<(String, Vec<u8>)>, String>, StoreError> {
        let mut named: BTreeMap<&str, &RowObject> = BTreeMap::new();
        for object in unit.profiles.iter().flat_map(|profile| &profile.objects) {
            named.insert(&object.name, object);
        }
        let mut loaded = Vec::new();
        for object in named.into_values() {
            let Some(bytes) = self.storage.get(&object.name)? else {
                return Ok(Err(format!("{} is missing", object.name)));
            };
            if ids::sha256(&bytes) != object.sha256 {
                return Ok(Err(format!("{} is damaged", object.name)));
            }
            loaded.push((object.name.clone(), bytes));
        }
        Ok(Ok(loaded))
    }

    /// Makes the profiles of a group name the merged objects, if these are all there and not so old that `gc` might
    /// delete them.
    fn switch(&self, group: Group, compacted: &mut Compacted) -> Result<(), StoreError> {
        for (was, merged) in &group.profiles {
            let mut problem = None;
            if group.began.elapsed().unwrap_or(FRESH) >= FRESH {
                problem = Some("the merged objects were written more than an hour ago".to_owned());
            }
            for object in &group.objects {
                if self.storage.size(&object.name)? != Some(object.bytes) {
                    problem = Some(format!("{} vanished", object.name));
                }
            }
            // The profile may have been repaired, merged by another process, or deleted by hand.
            match self.profile(&was.profile_id)? {
                Some(now) if now == *was => {}
                _ => problem = Some("it changed meanwhile".to_owned()),
            }
            match problem {
                Some(problem) => compacted.skipped.push((was.profile_id.clone(), problem)),
                None => {
                    let name = object_of(&was.profile_id);
                    self.storage.put(&name, &merged.encode()?)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the units of a partition's profiles, by their first start.
fn units(profiles: Vec<StoredProfile>) -> Vec<Unit> {
    let mut by_group: BTreeMap<String, Vec<StoredProfile>> = BTreeMap::new();
    for profile in profiles {
        let group = match profile.import_id.split_once('.') {
            Some((_, group)) => group.to_owned(),
            None => profile.profile_id.clone(),
        };
        by_group.entry(group).or_default().push(profile);
    }
    let mut units: Vec<Unit> = by_group
        .into_values()
        .map(|mut profiles| {
            profiles.sort_by_key(|profile| (profile.start_ns, profile.profile_id.clone()));
            let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
            for object in profiles.iter().flat_map(|profile| &profile.objects) {
                bytes.insert(&object.name, object.bytes);
            }
            Unit {
                bytes: bytes.into_values().sum(),
                is_merged: profiles.iter().any(StoredProfile::is_merged),
                profiles,
            }
        })
        .collect();
    units.sort_by_key(|unit| {
        let first = unit.profiles.first();
        first.map(|profile| (profile.start_ns, profile.profile_id.clone()))
    });
    units
}

/// Returns the groups of units to merge: each with about `target` bytes.
///
/// Objects that were merged before are merged again only once the others beside them are as large together, so a row is
/// written anew as often as the logarithm of its partition's size says.
fn chosen(units: Vec<Unit>, target: u64) -> Vec<Vec<Unit>> {
    let mut groups = vec![Vec::new()];
    let mut bytes = 0;
    for unit in units.into_iter().filter(|unit| unit.bytes < target / 2) {
        if bytes >= target {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += unit.bytes;
        if let Some(last) = groups.last_mut() {
            last.push(unit);
        }
    }
    for group in &mut groups {
        while let Some((place, largest)) = group
            .iter()
            .enumerate()
            .filter(|(_, unit)| unit.is_merged)
            .max_by_key(|(_, unit)| unit.bytes)
        {
            let all: u64 = group.iter().map(|unit| unit.bytes).sum();
            if largest.bytes.saturating_mul(2) <= all {
                break;
            }
            group.remove(place);
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Returns the number of the objects of units, and the sum of their sizes in bytes.
fn objects_of(units: &[Unit]) -> (u64, u64) {
    let mut objects: BTreeMap<&str, u64> = BTreeMap::new();
    for profile in units.iter().flat_map(|unit| &unit.profiles) {
        for object in &profile.objects {
            objects.insert(&object.name, object.bytes);
        }
    }
    (number(objects.len()), objects.values().sum())
}

/// Returns the rows of several objects as one, with the ids of imports as `renamed` has them. Rows of other imports are
/// left out.
fn merged_rows(
    table: Table,
    parts: &[&Vec<u8>],
    renamed: &HashMap<String, String>,
) -> Result<Vec<u8>, StoreError> {
    let schema = table.schema();
    let mut merged = Vec::new();
    let mut writer = Parts::new(table, &mut merged)?;
    for part in parts {
        let bytes = bytes::Bytes::copy_from_slice(part);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()?;
        for batch in reader {
            let batch = batch?;
            let missing = |column: &str| StoreError::Object {
                object: table.folder().to_owned(),
                reason: format!("has no {column}"),
            };
            let imports = batch
                .column_by_name("import_id")
                .and_then(|column| column.as_string_opt::<i32>())
                .ok_or_else(|| missing("import_id"))?;
            let new: Vec<Option<&String>> = imports
                .iter()
                .map(|import| renamed.get(import.unwrap_or_default()))
                .collect();
            let kept: BooleanArray = new.iter().map(|new| Some(new.is_some())).collect();
            let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
            for field in schema.fields() {
                columns.push(match field.name().as_str() {
                    "import_id" => Arc::new(StringArray::from_iter_values(
                        new.iter().map(|new| new.map_or("", String::as_str)),
                    )),
                    name => Arc::clone(batch.column_by_name(name).ok_or_else(|| missing(name))?),
                });
            }
            let batch = RecordBatch::try_new(schema.clone(), columns)?;
            writer.write(filter_record_batch(&batch, &kept)?)?;
        }
    }
    writer.close()?;
    Ok(merged)
}

fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
