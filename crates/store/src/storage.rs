//! The place where a store's objects lie: a folder, or a bucket of a server that speaks S3's protocol.
//!
//! Every write is atomic: an object is there as a whole or not at all.

use crate::error::StoreError;
use crate::schema::TEMPORARY;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;

/// An object in a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// The name, relative to the store, with `/` between folders.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the last write.
    pub written: SystemTime,
    /// The tag of its bytes, where the server states one.
    pub tag: Option<String>,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stated {
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the last write.
    pub written: SystemTime,
}

/// The place of a store.
pub(crate) enum Storage {
    /// A folder on disk.
    Folder(PathBuf),
    /// A bucket, or a folder in it.
    Remote(Remote),
}

/// A store in a bucket.
pub(crate) struct Remote {
    pub store: Arc<dyn ObjectStore>,
    /// The path in the bucket.
    pub prefix: ObjectPath,
    /// The place as the user wrote it, without a slash at the end.
    #[cfg(feature = "query")]
    pub url: url::Url,
    runtime: Runtime,
}

/// The longest time in which a connection to a bucket's server is made.
#[cfg(feature = "s3")]
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes names of temporary files differ within a process.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Storage {
    /// Opens a place: a folder, or `s3://BUCKET/PATH`. Nothing is made or read.
    ///
    /// # Errors
    /// The place is not understood, or this program was built without S3.
    pub(crate) fn open(place: &str, timeout: Duration) -> Result<Storage, StoreError> {
        match place.split_once("://") {
            None => Ok(Storage::Folder(PathBuf::from(place))),
            Some(("file", path)) => Ok(Storage::Folder(PathBuf::from(path))),
            Some(_) => Remote::open(place, timeout).map(Storage::Remote),
        }
    }

    /// Writes an object, in place of one that is there.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Storage::Folder(folder) => {
                let (temporary, target) = prepare(folder, name, bytes)?;
                fs::rename(&temporary, &target).map_err(StoreError::file(&target))?;
                sync_folders(folder, &target)
            }
            Storage::Remote(remote) => {
                let path = remote.path(name);
                let put = remote.store.put(&path, bytes.to_vec().into());
                remote.runtime.block_on(put)?;
                Ok(())
            }
        }
    }

    /// Writes an object unless one of this name is there. Returns whether it was written.
    pub(crate) fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        match self {
            Storage::Folder(folder) => {
                let (temporary, target) = prepare(folder, name, bytes)?;
                // A link, unlike a rename, fails where the name is taken.
                let linked = fs::hard_link(&temporary, &target);
                fs::remove_file(&temporary).map_err(StoreError::file(&temporary))?;
                match linked {
                    Ok(()) => sync_folders(folder, &target).map(|()| true),
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                    Err(error) => Err(StoreError::file(&target)(error)),
                }
            }
            Storage::Remote(remote) => {
                let options = PutOptions::from(PutMode::Create);
                let path = remote.path(name);
                let put = remote.store.put_opts(&path, bytes.to_vec().into(), options);
                match remote.runtime.block_on(put) {
                    Ok(_) => Ok(true),
                    Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Reads an object; `None` where there is none.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Storage::Folder(folder) => {
                let path = folder.join(name);
                match fs::read(&path) {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(StoreError::file(path)(error)),
                }
            }
            Storage::Remote(remote) => {
                let path = remote.path(name);
                let get = async { remote.store.get(&path).await?.bytes().await };
                match remote.runtime.block_on(get) {
                    Ok(bytes) => Ok(Some(bytes.to_vec())),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Lists the objects of a folder and of those below it, by name.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<Listed>, StoreError> {
        let mut listed = Vec::new();
        match self {
            Storage::Folder(root) => list_below(root, folder, &mut listed)?,
            Storage::Remote(remote) => {
                use futures::TryStreamExt;
                let below = remote.path(folder);
                let all = remote.store.list(Some(&below)).try_collect::<Vec<_>>();
                for object in remote.runtime.block_on(all)? {
                    let path = object.location.as_ref();
                    let prefix = remote.prefix.as_ref();
                    let name = path.strip_prefix(prefix).unwrap_or(path);
                    listed.push(Listed {
                        name: name.trim_start_matches('/').to_owned(),
                        bytes: object.size,
                        written: object.last_modified.into(),
                        tag: object.e_tag,
                    });
                }
            }
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Returns the size of an object in bytes; `None` where there is none.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        Ok(self.state(name)?.map(|state| state.bytes))
    }

    /// Returns the state of an object; `None` where there is none.
    pub(crate) fn state(&self, name: &str) -> Result<Option<Stated>, StoreError> {
        match self {
            Storage::Folder(folder) => {
                let path = folder.join(name);
                let stated = fs::metadata(&path).and_then(|metadata| {
                    Ok(Stated {
                        bytes: metadata.len(),
                        written: metadata.modified()?,
                    })
                });
                match stated {
                    Ok(state) => Ok(Some(state)),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(StoreError::file(path)(error)),
                }
            }
            Storage::Remote(remote) => {
                let path = remote.path(name);
                match remote.runtime.block_on(remote.store.head(&path)) {
                    Ok(object) => Ok(Some(Stated {
                        bytes: object.size,
                        written: object.last_modified.into(),
                    })),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Deletes an object. Nothing happens where there is none.
    pub(crate) fn delete(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Storage::Folder(folder) => {
                let path = folder.join(name);
                match fs::remove_file(&path) {
                    Ok(()) => Ok(()),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(StoreError::file(path)(error)),
                }
            }
            Storage::Remote(remote) => {
                let path = remote.path(name);
                match remote.runtime.block_on(remote.store.delete(&path)) {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

impl Remote {
    #[cfg(feature = "s3")]
    fn open(place: &str, timeout: Duration) -> Result<Remote, StoreError> {
        use object_store::aws::AmazonS3Builder;
        use object_store::{ClientOptions, RetryConfig};
        let wrong = |reason: String| StoreError::Place {
            place: place.to_owned(),
            reason,
        };
        let url: url::Url = place
            .trim_end_matches('/')
            .parse()
            .map_err(|error: url::ParseError| wrong(error.to_string()))?;
        if url.scheme() != "s3" {
            return Err(wrong(
                "give a folder, or a bucket as s3://BUCKET/PATH".to_owned(),
            ));
        }
        let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or_else(|| wrong("names no bucket".to_owned()))?;
        let mut client = ClientOptions::new()
            .with_timeout(timeout)
            .with_connect_timeout(timeout.min(CONNECT_TIMEOUT));
        if std::env::var("AWS_ALLOW_HTTP").is_ok_and(|word| word == "true") {
            client = client.with_allow_http(true);
        }
        // Regions, keys and the server come from AWS_REGION, AWS_ACCESS_KEY_ID, AWS_ENDPOINT and their like.
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_client_options(client)
            .with_retry(RetryConfig {
                retry_timeout: timeout,
                ..RetryConfig::default()
            })
            .build()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        Ok(Remote {
            store: Arc::new(store),
            prefix: ObjectPath::from(url.path()),
            #[cfg(feature = "query")]
            url,
            runtime,
        })
    }

    #[cfg(not(feature = "s3"))]
    fn open(place: &str, _timeout: Duration) -> Result<Remote, StoreError> {
        Err(StoreError::Place {
            place: place.to_owned(),
            reason: "this dioptra-store was built without its feature s3; give a folder".to_owned(),
        })
    }

    fn path(&self, name: &str) -> ObjectPath {
        match self.prefix.as_ref() {
            "" => ObjectPath::from(name),
            prefix => ObjectPath::from(format!("{prefix}/{name}")),
        }
    }
}

/// Writes bytes to a temporary file, and makes the folders of its target. Returns both paths.
fn prepare(folder: &Path, name: &str, bytes: &[u8]) -> Result<(PathBuf, PathBuf), StoreError> {
    let temporaries = folder.join(TEMPORARY);
    fs::create_dir_all(&temporaries).map_err(StoreError::file(&temporaries))?;
    let target = folder.join(name);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(StoreError::file(parent))?;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let nanoseconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let temporary = temporaries.join(format!("{}-{nanoseconds}-{number}", std::process::id()));
    let mut file = File::create_new(&temporary).map_err(StoreError::file(&temporary))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(StoreError::file(&temporary))?;
    Ok((temporary, target))
}

/// Makes the names of a file and of its folders, up to the store's, outlive a loss of power.
fn sync_folders(root: &Path, path: &Path) -> Result<(), StoreError> {
    let folders = path.ancestors().skip(1);
    for folder in folders.take_while(|folder| folder.starts_with(root)) {
        // The current folder has an empty name.
        let name = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        let synced = File::open(name).and_then(|folder| folder.sync_all());
        synced.map_err(StoreError::file(folder))?;
    }
    Ok(())
}

fn list_below(root: &Path, folder: &str, listed: &mut Vec<Listed>) -> Result<(), StoreError> {
    let path = root.join(folder);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::file(path)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(StoreError::file(&path))?;
        let Ok(own) = entry.file_name().into_string() else {
            // No name that this program gives.
            continue;
        };
        let name = format!("{folder}/{own}");
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // Another process has deleted or renamed it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(StoreError::file(entry.path())(error)),
        };
        if metadata.is_dir() {
            list_below(root, &name, listed)?;
        } else {
            listed.push(Listed {
                name,
                bytes: metadata.len(),
                written: metadata
                    .modified()
                    .map_err(StoreError::file(entry.path()))?,
                tag: None,
            });
        }
    }
    Ok(())
}
