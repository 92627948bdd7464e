//! Parts: the thread, image, name and CPU of a sample. Counts may be kept apart by part.

use crate::hash::FxBuildHasher;
use crate::processes::images::ImageId;
use crate::processes::tasks::{Tasks, ThreadId};
use hashbrown::HashMap;

/// The index of a [`Part`] in [`Parts`].
pub type PartId = u32;

/// The part of counts that are not kept apart by part.
pub(crate) const WHOLE: PartId = 0;

/// The thread and CPU of samples. A recording has few pairs of them, since most threads stay on few CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The thread; `None` where [`crate::LoadOptions::threads`] was not asked for.
    pub thread: Option<ThreadId>,
    /// The program image that the thread's process ran; `None` without the thread.
    pub image: Option<ImageId>,
    /// The thread's name when it was sampled, in [`Tasks::comms`]; `None` without the thread, and where it had no name.
    pub comm: Option<u32>,
    /// The CPU; `None` where [`crate::LoadPlan::cpus`] was not asked for, and for samples without a CPU.
    pub cpu: Option<u32>,
}

/// All parts of a recording.
#[derive(Clone, Debug)]
pub struct Parts {
    list: Vec<Part>,
    ids: HashMap<Part, PartId, FxBuildHasher>,
    /// By thread: its last part. Without threads there is one entry.
    last: Vec<(Part, PartId)>,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            list: vec![Self::NOTHING],
            ids: HashMap::default(),
            last: Vec::new(),
        }
    }
}

impl Parts {
    const NOTHING: Part = Part {
        thread: None,
        image: None,
        comm: None,
        cpu: None,
    };

    /// Returns the part with this id.
    ///
    /// # Panics
    /// On an id that these parts did not give.
    #[inline]
    pub fn get(&self, id: PartId) -> Part {
        self.list[id as usize]
    }

    /// Returns the number of parts. The first part says nothing about its samples.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns false: the first part is always there.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all parts in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Part> + '_ {
        self.list.iter().copied()
    }

    /// Returns the part of a thread, with its current image and name.
    #[inline]
    pub(crate) fn of_thread(
        &mut self,
        tasks: &Tasks,
        thread: ThreadId,
        cpu: Option<u32>,
    ) -> PartId {
        let part = Part {
            thread: Some(thread),
            image: Some(tasks.image_now(thread)),
            comm: tasks.comm_now(thread),
            cpu,
        };
        self.intern(thread as usize, part)
    }

    /// Returns the part of a CPU.
    #[inline]
    pub(crate) fn of_cpu(&mut self, cpu: Option<u32>) -> PartId {
        self.intern(
            0,
            Part {
                cpu,
                ..Self::NOTHING
            },
        )
    }

    #[inline]
    fn intern(&mut self, memo: usize, part: Part) -> PartId {
        if let Some((last, id)) = self.last.get(memo)
            && *last == part
        {
            return *id;
        }
        if part == Self::NOTHING {
            return WHOLE;
        }
        if memo >= self.last.len() {
            self.last.resize(memo + 1, (Self::NOTHING, WHOLE));
        }
        // Each part costs a sample, so their number fits.
        let next = PartId::try_from(self.list.len()).unwrap_or(PartId::MAX);
        let id = *self.ids.entry(part).or_insert(next);
        if id == next {
            self.list.push(part);
        }
        self.last[memo] = (part, id);
        id
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
        let mut parts = Parts::default();
        let thread = tasks.thread(5, 5);
        let other = tasks.thread(6, 6);
        let one = parts.of_thread(&tasks, thread, Some(0));
        assert_eq!(parts.of_thread(&tasks, thread, Some(0)), one);
        let far = parts.of_thread(&tasks, thread, Some(1));
        let next = parts.of_thread(&tasks, other, Some(0));
        tasks.rename(thread, b"named");
        let named = parts.of_thread(&tasks, thread, Some(0));
        tasks.exec(thread, Some(7), false);
        let after = parts.of_thread(&tasks, thread, Some(0));
        let mut all = vec![one, far, next, named, after];
        all.dedup();
        assert_eq!(all, [1, 2, 3, 4, 5]);
        assert_ne!(parts.get(named).image, parts.get(after).image);
        assert_eq!(parts.of_cpu(None), WHOLE);
        let cpu = parts.of_cpu(Some(3));
        assert_eq!(parts.of_cpu(Some(3)), cpu);
        assert_eq!(parts.get(cpu).cpu, Some(3));
        assert_eq!(parts.len(), 7);
    }
}
