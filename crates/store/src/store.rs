//! A store: profiles are added and listed here.

use crate::columns::Rows;
use crate::content::{self, Content, Input, ReadOptions};
use crate::error::StoreError;
use crate::ids::{self, Hasher};
use crate::profile_row::{RowObject, StoredProfile, object_of};
use crate::schema::{MARKER, Table, VERSION};
use crate::storage::Storage;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The longest time between the writing of an object and the commit that names it. `gc` never deletes younger objects
/// of a running writer if its `--older-than` is at least twice as long.
pub(crate) const FRESH: Duration = Duration::from_secs(3600);

/// The number of times that a writer writes its objects before it gives up.
const ATTEMPTS: u32 = 3;

/// The longest time for which a bucket's server may leave a request unanswered, unless the caller chooses another one.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// A store of profiles.
pub struct Store {
    pub(crate) storage: Arc<Storage>,
    pub(crate) place: String,
}

/// The result of adding a recording.
#[derive(Clone, Debug)]
pub struct Added {
    /// The profile in the store.
    pub profile: StoredProfile,
    /// Whether this call made it visible.
    pub how: How,
    /// The parts of the recording that the store has no place for; empty where nothing was written.
    pub lost: Vec<String>,
}

/// The way in which a recording came to be in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// This call added it.
    Added,
    /// The profile was there already.
    AlreadyThere,
    /// The profile was there already, and this call wrote objects again that were missing or cut.
    Repaired,
}

impl Store {
    /// Opens a store: a folder, or `s3://BUCKET/PATH`.
    ///
    /// # Errors
    /// There is no store, it is of another version, or it can't be reached.
    pub fn open(place: &str) -> Result<Store, StoreError> {
        Store::open_within(place, DEFAULT_TIMEOUT)
    }

    /// Opens a store whose server, if it is a bucket, may leave a request unanswered for `timeout`. Requests that failed
    /// for a passing reason are repeated for as long.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_within(place: &str, timeout: Duration) -> Result<Store, StoreError> {
        let storage = Storage::open(place, timeout)?;
        let Some(marker) = storage.get(MARKER)? else {
            return Err(StoreError::NoStore {
                place: place.to_owned(),
            });
        };
        let marker: serde_json::Value =
            serde_json::from_slice(&marker).map_err(|error| StoreError::Object {
                object: MARKER.to_owned(),
                reason: error.to_string(),
            })?;
        let found = marker["schema_version"].as_i64().unwrap_or(0);
        if found != VERSION {
            return Err(StoreError::Version {
                place: place.to_owned(),
                found,
                known: VERSION,
            });
        }
        Ok(Store {
            storage: Arc::new(storage),
            place: place.to_owned(),
        })
    }

    /// Opens a store, and makes it where there is none.
    ///
    /// # Errors
    /// The store is of another version, can't be reached or can't be made.
    pub fn open_or_create(place: &str) -> Result<Store, StoreError> {
        Store::open_or_create_within(place, DEFAULT_TIMEOUT)
    }

    /// Opens a store as [`Store::open_within`], and makes it where there is none.
    ///
    /// # Errors
    /// As [`Store::open_or_create`].
    pub fn open_or_create_within(place: &str, timeout: Duration) -> Result<Store, StoreError> {
        match Store::open_within(place, timeout) {
            Err(StoreError::NoStore { .. }) => {}
            result => return result,
        }
        let storage = Storage::open(place, timeout)?;
        for table in Table::OF_ROWS {
            storage.put(&table.empty_object(), &Rows::new(table).encode("")?)?;
        }
        let marker = serde_json::json!({ "schema_version": VERSION }).to_string();
        // Another writer may have made it meanwhile.
        storage.put_if_absent(MARKER, marker.as_bytes())?;
        Store::open_within(place, timeout)
    }

    /// Returns the place as it was given.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Adds a recording or the directory of a trace. A recording that is in the store stays as it is.
    ///
    /// Rows are written first. The object of the profile's own row comes last, and only if there is none: until then no
    /// reader sees the profile, and of two writers one makes it visible.
    ///
    /// # Errors
    /// The recording can't be read or is damaged, it is in the store with a label other than a chosen one, or writing
    /// failed.
    pub fn add(&self, path: &Path, options: &ReadOptions) -> Result<Added, StoreError> {
        options.labels.check()?;
        let input = Input::of(path)?;
        if let Some(there) = self.profile(&input.profile_id)? {
            check_labels(&there, options)?;
            let mut added = Added {
                profile: there,
                how: How::AlreadyThere,
                lost: Vec::new(),
            };
            if let Some(object) = self.first_broken(&added.profile)? {
                added.profile = self.repair(&input, options, &added.profile, object)?;
                added.how = How::Repaired;
            }
            return Ok(added);
        }
        let mut content = content::read(&input, options)?;
        let lost = std::mem::take(&mut content.lost);
        let (profile, objects) = encode(content)?;
        self.write_objects(&profile.objects, &objects)?;
        let name = object_of(&profile.profile_id);
        if self.storage.put_if_absent(&name, &profile.encode()?)? {
            // A `gc` that did not know of the profile may have deleted an object right before the commit.
            if self.first_broken(&profile)?.is_some() {
                self.write_objects(&profile.objects, &objects)?;
            }
            return Ok(Added {
                profile,
                how: How::Added,
                lost,
            });
        }
        // Another writer was faster. Its objects may have other names; ours are then left for `gc`.
        let there = self.profile(&profile.profile_id)?.unwrap_or(profile);
        check_labels(&there, options)?;
        Ok(Added {
            profile: there,
            how: How::AlreadyThere,
            lost,
        })
    }

    /// Writes objects until all of them are there and none is older than [`FRESH`]. A writer may take long or be
    /// stopped, and `gc` deletes objects that no profile names.
    fn write_objects(&self, named: &[RowObject], objects: &[Vec<u8>]) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let start = SystemTime::now();
            for (object, bytes) in named.iter().zip(objects) {
                self.storage.put(&object.name, bytes)?;
            }
            let mut is_whole = true;
            for object in named {
                is_whole &= self.storage.size(&object.name)? == Some(object.bytes);
            }
            let took = start.elapsed().unwrap_or(FRESH);
            if is_whole && took < FRESH {
                return Ok(());
            }
        }
        Err(StoreError::Disturbed {
            place: self.place.clone(),
        })
    }

    /// Returns a profile of the store; `None` where it has none of this id.
    ///
    /// # Errors
    /// The store can't be read, or the profile's row is damaged.
    pub fn profile(&self, profile_id: &str) -> Result<Option<StoredProfile>, StoreError> {
        let name = object_of(profile_id);
        let bytes = self.storage.get(&name)?;
        bytes
            .map(|bytes| StoredProfile::decode(&name, bytes))
            .transpose()
    }

    /// Returns all profiles by date, service, host and start.
    ///
    /// # Errors
    /// The store can't be read, or a profile's row is damaged.
    pub fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError> {
        let mut profiles = Vec::new();
        for object in self.storage.list(Table::Profiles.folder())? {
            // An object that is gone was deleted since the listing.
            if let Some(bytes) = self.storage.get(&object.name)? {
                profiles.push(StoredProfile::decode(&object.name, bytes)?);
            }
        }
        profiles.sort_by(|one, other| {
            let key = |profile: &StoredProfile| {
                let labels = profile.labels.clone();
                (labels.date, labels.service, labels.host, profile.start_ns)
            };
            key(one).cmp(&key(other))
        });
        Ok(profiles)
    }

    /// Returns the name of the first object of a profile that is missing or has another size.
    fn first_broken(&self, profile: &StoredProfile) -> Result<Option<String>, StoreError> {
        for object in &profile.objects {
            if self.storage.size(&object.name)? != Some(object.bytes) {
                return Ok(Some(object.name.clone()));
            }
        }
        Ok(None)
    }

    /// Writes a profile's objects again, if this machine makes the same rows. A profile whose rows were merged with
    /// others' gets objects of its own again.
    fn repair(
        &self,
        input: &Input,
        options: &ReadOptions,
        there: &StoredProfile,
        object: String,
    ) -> Result<StoredProfile, StoreError> {
        let mut options = options.clone();
        options.labels.date = Some(there.labels.date.clone());
        options.labels.service = Some(there.labels.service.clone());
        options.labels.host = Some(there.labels.host.clone());
        let (profile, objects) = encode(content::read(input, &options)?)?;
        // The id tells all rows. Another version of this program may have written them as other bytes.
        if profile.import_id != there.own_import() {
            return Err(StoreError::NotRepairable { object });
        }
        self.write_objects(&profile.objects, &objects)?;
        if profile.objects != there.objects {
            let name = object_of(&profile.profile_id);
            self.storage.put(&name, &profile.encode()?)?;
        }
        Ok(profile)
    }
}

/// Checks that a profile of the store has the labels that were chosen.
fn check_labels(there: &StoredProfile, options: &ReadOptions) -> Result<(), StoreError> {
    match there.labels.differs(&options.labels) {
        None => Ok(()),
        Some((label, in_store, wanted)) => Err(StoreError::OtherLabel {
            profile: there.profile_id.clone(),
            label,
            there: in_store.to_owned(),
            wanted: wanted.to_owned(),
        }),
    }
}

/// Makes the objects of a profile's rows, and the profile that names them.
fn encode(mut content: Content) -> Result<(StoredProfile, Vec<Vec<u8>>), StoreError> {
    let mut hash = Hasher::new("import");
    hash.number(VERSION);
    hash.text(&content.profile_id);
    hash.text(&content.labels.folder());
    for rows in &content.rows {
        hash.text(&rows.digest().1);
    }
    let import_id = hash.id();
    let folder = content.labels.folder();
    let mut objects = Vec::new();
    let mut named = Vec::new();
    for rows in std::mem::take(&mut content.rows) {
        let table = rows.digest().0;
        let count = rows.len();
        if count == 0 {
            continue;
        }
        let bytes = rows.encode(&import_id)?;
        named.push(RowObject {
            name: format!("{}/{folder}/{import_id}.parquet", table.folder()),
            bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            sha256: ids::sha256(&bytes),
            rows: u64::try_from(count).unwrap_or(u64::MAX),
        });
        objects.push(bytes);
    }
    Ok((StoredProfile::new(&content, import_id, named), objects))
}
