//! The calls on a stack, with those that the compiler inlined.

use crate::source::Source;
use dioptra_profile::{FrameId, FunctionId, LineId, StackId, Stacks};

/// One address of a stack: its functions and their lines.
pub(crate) struct StackFrame<'a> {
    /// The address.
    pub frame: FrameId,
    /// Whether the address lies behind a call. Other functions may be inlined there than at the same address where a
    /// sample was taken.
    pub is_caller: bool,
    /// The functions at the address, innermost first.
    pub functions: &'a [FunctionId],
    /// The lines of the functions; empty where they are not apart.
    lines: &'a [LineId],
}

impl StackFrame<'_> {
    /// Returns the file and line of the function at this place in [`StackFrame::functions`], where they are known.
    pub(crate) fn line<'s>(
        &self,
        source: &Source<'s>,
        place: usize,
    ) -> Option<(&'s str, Option<u32>)> {
        let names = source.names;
        let line = match self.lines.get(place) {
            Some(line) => *line,
            None if names.has_lines() && self.functions.len() == 1 => names.line_of(self.frame),
            None => return None,
        };
        let line = &names.lines()[line as usize];
        Some((line.file.as_deref()?, line.line))
    }
}

impl<'a> Source<'a> {
    /// Returns the addresses of a stack, innermost first.
    pub(crate) fn stack_frames(
        &self,
        stack: StackId,
    ) -> impl Iterator<Item = StackFrame<'a>> + use<'a> {
        let (profile, names) = (self.profile, self.names);
        let mut callee = None;
        let mut at = stack;
        std::iter::from_fn(move || {
            if at == Stacks::ROOT {
                return None;
            }
            let node = profile.stacks().get(at);
            let frame = node.frame;
            let found = StackFrame {
                frame,
                is_caller: callee.is_some_and(|callee| !names.is_interrupted(frame, callee)),
                functions: names.chain_of(frame, callee),
                lines: names.chain_lines(frame, callee),
            };
            callee = Some(frame);
            at = node.parent;
            Some(found)
        })
    }
}
