//! A store: profiles are added and listed here.

use crate::content::{self, Content, ReadOptions};
use crate::error::StoreError;
use crate::ids::{self, Hasher};
use crate::profile_row::{RowObject, StoredProfile, object_of};
use crate::schema::{MARKER, Table, VERSION};
use crate::storage::Storage;
use std::path::Path;

/// A store of profiles.
pub struct Store {
    pub(crate) storage: Storage,
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
        let storage = Storage::open(place)?;
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
            storage,
            place: place.to_owned(),
        })
    }

    /// Opens a store, and makes it where there is none.
    ///
    /// # Errors
    /// The store is of another version, can't be reached or can't be made.
    pub fn open_or_create(place: &str) -> Result<Store, StoreError> {
        match Store::open(place) {
            Err(StoreError::NoStore { .. }) => {}
            result => return result,
        }
        let marker = serde_json::json!({ "schema_version": VERSION }).to_string();
        // Another writer may have made it meanwhile.
        Storage::open(place)?.put_if_absent(MARKER, marker.as_bytes())?;
        Store::open(place)
    }

    /// Returns the place as it was given.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Adds a recording. A recording that is in the store stays as it is.
    ///
    /// Rows are written first. The object of the profile's own row comes last, and only if there is none: until then no
    /// reader sees the profile, and of two writers one makes it visible.
    ///
    /// # Errors
    /// The recording can't be read or is damaged, it is in the store with a label other than a chosen one, or writing
    /// failed.
    pub fn add(&self, path: &Path, options: &ReadOptions) -> Result<Added, StoreError> {
        options.labels.check()?;
        let file = ids::of_file(path).map_err(StoreError::file(path))?;
        if let Some(there) = self.profile(&file.0)? {
            check_labels(&there, options)?;
            let how = match self.first_broken(&there)? {
                None => How::AlreadyThere,
                Some(object) => {
                    self.repair(path, file, options, &there, object)?;
                    How::Repaired
                }
            };
            return Ok(Added {
                profile: there,
                how,
                lost: Vec::new(),
            });
        }
        let mut content = content::read(path, file, options)?;
        let lost = std::mem::take(&mut content.lost);
        let (profile, objects) = encode(content)?;
        for (object, bytes) in profile.objects.iter().zip(&objects) {
            self.storage.put(&object.name, bytes)?;
        }
        let name = object_of(&profile.profile_id);
        if self.storage.put_if_absent(&name, &profile.encode()?)? {
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

    /// Writes a profile's objects again, if this machine makes the same ones.
    fn repair(
        &self,
        path: &Path,
        file: (String, u64),
        options: &ReadOptions,
        there: &StoredProfile,
        object: String,
    ) -> Result<(), StoreError> {
        let mut options = options.clone();
        options.labels.date = Some(there.labels.date.clone());
        options.labels.service = Some(there.labels.service.clone());
        options.labels.host = Some(there.labels.host.clone());
        let (profile, objects) = encode(content::read(path, file, &options)?)?;
        if profile.objects != there.objects {
            return Err(StoreError::NotRepairable { object });
        }
        for (object, bytes) in profile.objects.iter().zip(&objects) {
            self.storage.put(&object.name, bytes)?;
        }
        Ok(())
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
