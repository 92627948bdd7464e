//! Functions that the compiler inlined into others, so that one place has several functions.

use crate::naming::names::{FunctionId, LineId, ModuleNote};
use crate::profile::Profile;
use crate::stacks::call_stacks::Stacks;
use crate::stacks::frames::FrameId;
use dioptra_symbols::ModuleKind;

/// The inlined functions of all places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inlined {
    /// The functions of places where a sample was taken.
    pub executing: Chains,
    /// The functions of places behind a call.
    pub calling: Chains,
    /// By frame: whether it lies in the kernel.
    pub in_kernel: Vec<bool>,
    /// By frame: whether debug information says nothing about it as a place where a sample was taken.
    pub undescribed: Vec<bool>,
    /// The symbolizer's notes about debug information.
    pub notes: Vec<ModuleNote>,
}

impl Inlined {
    /// Returns the chains for `frame`, which executes itself or has called `callee`.
    #[inline]
    pub(crate) fn of(&self, frame: FrameId, callee: Option<FrameId>) -> &Chains {
        match callee {
            Some(callee) if !self.is_interrupted(frame, callee) => &self.calling,
            _ => &self.executing,
        }
    }

    #[inline]
    pub(crate) fn is_interrupted(&self, caller: FrameId, callee: FrameId) -> bool {
        interrupts(&self.in_kernel, callee, caller)
    }
}

/// Returns whether the callee is in the kernel and the caller is not. Then the caller's address is the interrupted
/// instruction's, and does not lie behind a call.
#[inline]
fn interrupts(in_kernel: &[bool], callee: FrameId, caller: FrameId) -> bool {
    in_kernel[callee as usize] && !in_kernel[caller as usize]
}

/// Lists of functions by frame, all in one vector. Only frames with more than one function have a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    /// By frame: the start and the length of its list.
    ranges: Vec<(u32, u32)>,
    functions: Vec<FunctionId>,
    /// The line of each entry of `functions`.
    lines: Vec<LineId>,
}

impl Chains {
    pub(crate) fn new(frames: usize) -> Chains {
        Chains {
            ranges: vec![(0, 0); frames],
            ..Chains::default()
        }
    }

    /// Adds a frame's list, innermost function first. Returns false for a list beyond the largest number of entries,
    /// which is left out.
    pub(crate) fn add(
        &mut self,
        frame: FrameId,
        list: impl Iterator<Item = (FunctionId, LineId)>,
    ) -> bool {
        let start = self.functions.len();
        for (function, line) in list {
            self.functions.push(function);
            self.lines.push(line);
        }
        let (Ok(start), Ok(_)) = (u32::try_from(start), u32::try_from(self.functions.len())) else {
            self.functions.truncate(start);
            self.lines.truncate(start);
            return false;
        };
        // Both ends fit.
        let length = self.functions.len() as u32 - start;
        self.ranges[frame as usize] = (start, length);
        true
    }

    /// Returns a frame's functions, innermost first; none where it has only one function.
    #[inline]
    pub(crate) fn functions(&self, frame: FrameId) -> &[FunctionId] {
        let (start, length) = self.ranges[frame as usize];
        &self.functions[start as usize..][..length as usize]
    }

    pub(crate) fn lines(&self, frame: FrameId) -> &[LineId] {
        let (start, length) = self.ranges[frame as usize];
        &self.lines[start as usize..][..length as usize]
    }
}

/// The roles in which the frames of a profile occur in its stacks.
pub(crate) struct Roles {
    /// By frame: whether samples were taken there, or it was interrupted.
    pub executing: Vec<bool>,
    /// By frame: whether its address lies behind a call.
    pub calling: Vec<bool>,
    /// By frame.
    pub in_kernel: Vec<bool>,
}

impl Roles {
    pub(crate) fn of(profile: &Profile) -> Roles {
        let kernel: Vec<bool> = profile
            .modules()
            .iter()
            .map(|module| module.kind == ModuleKind::Kernel)
            .collect();
        let frames = profile.frames();
        let mut roles = Roles {
            executing: vec![false; frames.len()],
            calling: vec![false; frames.len()],
            in_kernel: frames
                .iter()
                .map(|frame| kernel[frame.module as usize])
                .collect(),
        };
        if !profile.options().call_chains {
            roles.executing.fill(true);
            return roles;
        }
        for event in profile.events() {
            profile.places(event, |place, _| {
                roles.executing[profile.leaf(place) as usize] = true;
            });
        }
        let stacks = profile.stacks();
        // Ids fit, since the stacks gave them.
        for id in 1..stacks.len() as u32 {
            let node = stacks.get(id);
            if node.parent == Stacks::ROOT {
                continue;
            }
            let caller = stacks.get(node.parent).frame;
            if interrupts(&roles.in_kernel, node.frame, caller) {
                roles.executing[caller as usize] = true;
            } else {
                roles.calling[caller as usize] = true;
            }
        }
        roles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_by_frame() {
        let mut chains = Chains::new(3);
        chains.add(2, [(7, 1), (8, 2)].into_iter());
        chains.add(0, [(9, 3), (7, 4), (5, 5)].into_iter());
        assert_eq!(chains.functions(0), [9, 7, 5]);
        assert_eq!(chains.lines(0), [3, 4, 5]);
        assert_eq!(chains.functions(1), []);
        assert_eq!(chains.functions(2), [7, 8]);
    }

    #[test]
    fn an_interrupted_caller_executes() {
        let mut inlined = Inlined {
            executing: Chains::new(3),
            calling: Chains::new(3),
            in_kernel: vec![false, false, true],
            undescribed: Vec::new(),
            notes: Vec::new(),
        };
        inlined.executing.add(0, [(1, 0), (2, 0)].into_iter());
        inlined.calling.add(0, [(3, 0), (2, 0)].into_iter());
        assert_eq!(inlined.of(0, None).functions(0), [1, 2]);
        assert_eq!(inlined.of(0, Some(1)).functions(0), [3, 2]);
        assert_eq!(inlined.of(0, Some(2)).functions(0), [1, 2]);
        assert_eq!(inlined.of(2, Some(2)).functions(2), []);
    }
}
