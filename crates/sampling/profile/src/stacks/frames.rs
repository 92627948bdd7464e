//! Frames: places in modules, interned.

use crate::processes::modules::ModuleId;
use crate::stacks::slots::Slots;

/// The index of a [`Frame`] in [`Frames`].
pub type FrameId = u32;

/// A place in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The relative address: a file offset in a file or the vdso, else an absolute address.
    pub address: u64,
    /// The module.
    pub module: ModuleId,
}

/// All places of a recording, each once.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    list: Vec<Frame>,
    ids: Slots,
}

impl Frames {
    /// Returns the frame with this id.
    ///
    /// # Panics
    /// On an id that these frames did not give.
    #[inline]
    pub fn get(&self, id: FrameId) -> Frame {
        self.list[id as usize]
    }

    /// Returns the number of distinct places.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all frames in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Frame> + '_ {
        self.list.iter().copied()
    }

    #[inline]
    pub(crate) fn intern(&mut self, frame: Frame) -> FrameId {
        if let Some(id) = self.ids.find((frame.address, frame.module)) {
            return id;
        }
        self.add(frame)
    }

    /// Prefetches the table entry that [`Frames::intern`] will read soon.
    #[inline]
    pub(crate) fn prefetch(&self, frame: Frame) {
        self.ids.prefetch((frame.address, frame.module));
    }

    #[cold]
    fn add(&mut self, frame: Frame) -> FrameId {
        // A frame needs at least eight bytes of the file. Only a recording of 32 GiB with nothing but distinct
        // addresses would share the last id.
        let next = FrameId::try_from(self.list.len()).unwrap_or(FrameId::MAX);
        if next >= FrameId::MAX - 1 {
            return FrameId::MAX - 2;
        }
        self.list.push(frame);
        self.ids.get_or_insert((frame.address, frame.module), next)
    }

    /// Returns a copy without the table that only growing needs.
    pub(crate) fn frozen(&self) -> Self {
        Frames {
            list: self.list.clone(),
            ids: Slots::default(),
        }
    }

    /// Drops the table that only growing needs.
    pub(crate) fn freeze(&mut self) {
        self.ids = Slots::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_frames_share_an_id() {
        let mut frames = Frames::default();
        for round in 0..2 {
            for address in 0..1000 {
                let id = frames.intern(Frame { address, module: 1 });
                assert_eq!(u64::from(id), address, "round {round}");
            }
        }
        assert_eq!(
            frames.intern(Frame {
                address: 5,
                module: 2
            }),
            1000
        );
        assert_eq!(frames.get(1000).module, 2);
    }
}
