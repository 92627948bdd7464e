//! Sample keys: the thread, image, name and CPU by which samples are counted apart.

use crate::hash::FxBuildHasher;
use crate::processes::images::ImageId;
use crate::processes::tasks::{Tasks, ThreadId};
use hashbrown::HashMap;

/// The index of a [`SampleKey`] in [`SampleKeys`].
pub type SampleKeyId = u32;

/// The key of all samples where counts are not kept apart.
pub(crate) const WHOLE: SampleKeyId = 0;

/// The thread, image, name and CPU of samples. A recording has few pairs of them, since most threads stay on few CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// The thread; `None` where [`crate::LoadOptions::threads`] was not asked for.
    pub thread: Option<ThreadId>,
    /// The program image that the thread's process ran; `None` without the thread.
    pub image: Option<ImageId>,
    /// The thread's name when it was sampled, in [`Tasks::comms`]; `None` without the thread, and where it had no name.
    pub comm: Option<u32>,
    /// The CPU; `None` where [`crate::LoadPlan::cpus`] was not asked for, and for samples without a CPU.
    pub cpu: Option<u32>,
}

/// All sample keys of a recording.
#[derive(Clone, Debug)]
pub struct SampleKeys {
    list: Vec<SampleKey>,
    ids: HashMap<SampleKey, SampleKeyId, FxBuildHasher>,
    /// By thread: its last sample key. Without threads there is one entry.
    last: Vec<(SampleKey, SampleKeyId)>,
}

impl Default for SampleKeys {
    fn default() -> Self {
        SampleKeys {
            list: vec![Self::NOTHING],
            ids: HashMap::default(),
            last: Vec::new(),
        }
    }
}

impl SampleKeys {
    const NOTHING: SampleKey = SampleKey {
        thread: None,
        image: None,
        comm: None,
        cpu: None,
    };

    /// Returns the sample key with this id.
    ///
    /// # Panics
    /// On an id that this list did not give.
    #[inline]
    pub fn get(&self, id: SampleKeyId) -> SampleKey {
        self.list[id as usize]
    }

    /// Returns the number of sample keys. The first sample key says nothing about its samples.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns false: the first sample key is always there.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all sample keys in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SampleKey> + '_ {
        self.list.iter().copied()
    }

    /// Returns the sample key of a thread, with its current image and name.
    #[inline]
    pub(crate) fn of_thread(
        &mut self,
        tasks: &Tasks,
        thread: ThreadId,
        cpu: Option<u32>,
    ) -> SampleKeyId {
        let sample_key = SampleKey {
            thread: Some(thread),
            image: Some(tasks.image_now(thread)),
            comm: tasks.comm_now(thread),
            cpu,
        };
        self.intern(thread as usize, sample_key)
    }

    /// Returns the sample key of a CPU.
    #[inline]
    pub(crate) fn of_cpu(&mut self, cpu: Option<u32>) -> SampleKeyId {
        self.intern(
            0,
            SampleKey {
                cpu,
                ..Self::NOTHING
            },
        )
    }

    #[inline]
    fn intern(&mut self, memo: usize, sample_key: SampleKey) -> SampleKeyId {
        if let Some((last, id)) = self.last.get(memo)
            && *last == sample_key
        {
            return *id;
        }
        if sample_key == Self::NOTHING {
            return WHOLE;
        }
        if memo >= self.last.len() {
            self.last.resize(memo + 1, (Self::NOTHING, WHOLE));
        }
        // Each sample key costs a sample, so their number fits.
        let next = SampleKeyId::try_from(self.list.len()).unwrap_or(SampleKeyId::MAX);
        let id = *self.ids.entry(sample_key).or_insert(next);
        if id == next {
            self.list.push(sample_key);
        }
        self.last[memo] = (sample_key, id);
        id
    }

    /// Returns a copy without the data that only growing needs.
    pub(crate) fn frozen(&self) -> Self {
        SampleKeys {
            list: self.list.clone(),
            ids: HashMap::default(),
            last: Vec::new(),
        }
    }

    /// Drops the data that only growing needs.
    pub(crate) fn freeze(&mut self) {
        self.ids = HashMap::default();
        self.last = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_for_each_thread_name_image_and_cpu() {
        let mut tasks = Tasks::default();
        let mut sample_keys = SampleKeys::default();
        let thread = tasks.thread(5, 5);
        let other = tasks.thread(6, 6);
        let one = sample_keys.of_thread(&tasks, thread, Some(0));
        assert_eq!(sample_keys.of_thread(&tasks, thread, Some(0)), one);
        let far = sample_keys.of_thread(&tasks, thread, Some(1));
        let next = sample_keys.of_thread(&tasks, other, Some(0));
        tasks.rename(thread, b"named");
        let named = sample_keys.of_thread(&tasks, thread, Some(0));
        tasks.exec(thread, Some(7), false);
        let after = sample_keys.of_thread(&tasks, thread, Some(0));
        let mut all = vec![one, far, next, named, after];
        all.dedup();
        assert_eq!(all, [1, 2, 3, 4, 5]);
        assert_ne!(sample_keys.get(named).image, sample_keys.get(after).image);
        assert_eq!(sample_keys.of_cpu(None), WHOLE);
        let cpu = sample_keys.of_cpu(Some(3));
        assert_eq!(sample_keys.of_cpu(Some(3)), cpu);
        assert_eq!(sample_keys.get(cpu).cpu, Some(3));
        assert_eq!(sample_keys.len(), 7);
    }
}
