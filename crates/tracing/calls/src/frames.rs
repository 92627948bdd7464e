//! Open calls of a stream, by call stack.

use std::collections::BTreeMap;

/// What someone who reads a stream keeps of its open calls: of the current call stack, and of the others.
#[derive(Debug)]
pub struct Frames<F> {
    current: Vec<F>,
    elsewhere: BTreeMap<u32, Vec<F>>,
    stack: u32,
}

impl<F> Default for Frames<F> {
    fn default() -> Self {
        Frames {
            current: Vec::new(),
            elsewhere: BTreeMap::new(),
            stack: 0,
        }
    }
}

impl<F> Frames<F> {
    /// A call begins.
    #[inline]
    pub fn push(&mut self, frame: F) {
        self.current.push(frame);
    }

    /// The innermost call ends; none if none is open.
    #[inline]
    pub fn pop(&mut self) -> Option<F> {
        self.current.pop()
    }

    /// The innermost open call.
    #[inline]
    pub fn last(&self) -> Option<&F> {
        self.current.last()
    }

    /// The innermost open call.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut F> {
        self.current.last_mut()
    }

    /// The open calls of the current stack, the outermost first.
    pub fn current(&self) -> &[F] {
        &self.current
    }

    /// The same, to be changed.
    pub fn current_mut(&mut self) -> &mut [F] {
        &mut self.current
    }

    /// Goes on with another stack.
    pub fn switch(&mut self, stack: u32) {
        if stack == self.stack {
            return;
        }
        let next = self.elsewhere.remove(&stack).unwrap_or_default();
        let left = std::mem::replace(&mut self.current, next);
        // Of a stack without open calls there is nothing to know.
        if !left.is_empty() {
            self.elsewhere.insert(self.stack, left);
        }
        self.stack = stack;
    }

    /// A stack that has open calls, the current one if it has any; none if there is none. When the stream has ended,
    /// each is found by [`Frames::switch`] to it and [`Frames::pop`] until it is empty.
    pub fn next_open(&mut self) -> Option<u32> {
        if !self.current.is_empty() {
            return Some(self.stack);
        }
        self.elsewhere.keys().next().copied()
    }
}
