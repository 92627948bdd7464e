//! Answers that are kept for a while, in bounded memory.

use crate::failure::Failure;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value that knows how much memory it takes.
pub(crate) trait MemorySize {
    /// Bytes, roughly.
    fn bytes(&self) -> usize;
}

/// The place of a value, which the first one who asks for it fills while others wait.
type Slot<V> = Arc<Mutex<Option<Arc<V>>>>;

struct Entry<K, V> {
    key: K,
    slot: Slot<V>,
    bytes: usize,
    /// When it was asked for last.
    used: u64,
}

struct Entries<K, V> {
    list: Vec<Entry<K, V>>,
    clock: u64,
}

/// Values by key, of which those are dropped that were not asked for longest.
pub(crate) struct Cache<K, V> {
    entries: Mutex<Entries<K, V>>,
    /// The bytes that all values take at most; the newest value stays whatever it takes.
    limit: usize,
}

/// A panic while the lock was held leaves nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: PartialEq, V: MemorySize> Cache<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Cache {
            entries: Mutex::new(Entries {
                list: Vec::new(),
                clock: 0,
            }),
            limit,
        }
    }

    /// The value of a key, made if it is not there. Who asks for the same value at the same time waits for it.
    pub(crate) fn get(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, Failure>,
    ) -> Result<Arc<V>, Failure> {
        let slot = self.slot(key);
        let mut value = locked(&slot);
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        match make() {
            Ok(made) => {
                let made = Arc::new(made);
                *value = Some(Arc::clone(&made));
                drop(value);
                self.made(&slot, made.bytes());
                Ok(made)
            }
            Err(error) => {
                drop(value);
                let mut entries = locked(&self.entries);
                entries
                    .list
                    .retain(|entry| !Arc::ptr_eq(&entry.slot, &slot));
                Err(error)
            }
        }
    }

    /// Returns the value if it is there; `None` while somebody makes it.
    pub(crate) fn known(&self, key: &K) -> Option<Arc<V>> {
        let slot = {
            let mut entries = locked(&self.entries);
            entries.clock += 1;
            let now = entries.clock;
            let known = entries.list.iter_mut().find(|entry| entry.key == *key)?;
            known.used = now;
            Arc::clone(&known.slot)
        };
        let value = slot.try_lock().ok()?;
        value.clone()
    }

    fn slot(&self, key: K) -> Slot<V> {
        let mut entries = locked(&self.entries);
        entries.clock += 1;
        let now = entries.clock;
        if let Some(known) = entries.list.iter_mut().find(|entry| entry.key == key) {
            known.used = now;
            return Arc::clone(&known.slot);
        }
        let slot = Slot::default();
        entries.list.push(Entry {
            key,
            slot: Arc::clone(&slot),
            bytes: 0,
            used: now,
        });
        slot
    }

    /// Notes the size of a value that was made, and drops the oldest ones if all take too much.
    fn made(&self, slot: &Slot<V>, bytes: usize) {
        let mut entries = locked(&self.entries);
        for entry in &mut entries.list {
            if Arc::ptr_eq(&entry.slot, slot) {
                entry.bytes = bytes;
            }
        }
        let mut all: usize = entries.list.iter().map(|entry| entry.bytes).sum();
        while all > self.limit {
            let others = entries.list.iter().enumerate();
            // Values without a size are being made.
            let others =
                others.filter(|(_, entry)| entry.bytes > 0 && !Arc::ptr_eq(&entry.slot, slot));
            let Some((oldest, _)) = others.min_by_key(|(_, entry)| entry.used) else {
                return;
            };
            all -= entries.list.swap_remove(oldest).bytes;
        }
    }

    /// Drops all values whose keys do not pass.
    pub(crate) fn retain(&self, keep: impl Fn(&K) -> bool) {
        locked(&self.entries).list.retain(|entry| keep(&entry.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MemorySize for Vec<u8> {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    #[test]
    fn the_oldest_values_go() {
        let cache: Cache<u32, Vec<u8>> = Cache::new(25);
        let made = |key: u32| {
            let mut made = false;
            let value = cache.get(key, || {
                made = true;
                Ok(vec![0; 10])
            });
            assert_eq!(value.map(|value| value.len()), Ok(10));
            made
        };
        assert!(made(1) && made(2));
        assert!(!made(1) && !made(2) && !made(1));
        // The third one takes the place of the second.
        assert!(made(3));
        assert!(!made(1) && !made(3));
        assert!(made(2));
        cache.retain(|key| *key == 2);
        assert!(!made(2) && made(1));
    }

    #[test]
    fn a_value_is_known_once_it_is_made() {
        let cache: Cache<u32, Vec<u8>> = Cache::new(25);
        assert_eq!(cache.known(&1), None);
        let made = cache.get(1, || {
            assert_eq!(cache.known(&1), None, "it is being made");
            Ok(vec![7])
        });
        assert_eq!(made.ok(), cache.known(&1));
        assert!(cache.known(&1).is_some() && cache.known(&2).is_none());
    }

    #[test]
    fn failures_are_not_kept() {
        let cache: Cache<u32, Vec<u8>> = Cache::new(10);
        assert_eq!(cache.get(1, || Err(Failure::Gone)), Err(Failure::Gone));
        assert!(cache.get(1, || Ok(vec![0; 99])).is_ok());
    }

    #[test]
    fn several_who_ask_at_once_share_one_value() {
        let cache: Cache<u32, Vec<u8>> = Cache::new(100);
        let made = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    cache.get(7, || {
                        made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(vec![1])
                    })
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }
}
