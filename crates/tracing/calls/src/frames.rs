//! Open calls of a stream, by call stack.

use std::collections::BTreeMap;

/// The open calls of a stream as its reader keeps them: those of the current call stack, and those of others.
#[derive(Debug)]
pub struct OpenCalls<F> {
    current: Vec<F>,
    elsewhere: BTreeMap<u32, Vec<F>>,
    stack: u32,
}

impl<F> Default for OpenCalls<F> {
    fn default() -> Self {
        OpenCalls {
            current: Vec::new(),
            elsewhere: BTreeMap::new(),
            stack: 0,
        }
    }
}

impl<F> OpenCalls<F> {
    /// Adds a call that begins.
    #[inline]
    pub fn push(&mut self, frame: F) {
        self.current.push(frame);
    }

    /// Removes the innermost call, which ends; `None` if none is open.
    #[inline]
    pub fn pop(&mut self) -> Option<F> {
        self.current.pop()
    }

    /// Returns the innermost open call.
    #[inline]
    pub fn last(&self) -> Option<&F> {
        self.current.last()
    }

    /// Returns the innermost open call for changes.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut F> {
        self.current.last_mut()
    }

    /// Returns the open calls of the current stack, the outermost first.
    pub fn current(&self) -> &[F] {
        &self.current
    }

    /// Returns the open calls of the current stack for changes, the outermost first.
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
        // A stack without open calls needs no memory.
        if !left.is_empty() {
            self.elsewhere.insert(self.stack, left);
        }
        self.stack = stack;
    }

    /// Returns a stack that has open calls, the current one if it has any; `None` if there is none. At a stream's
    /// end, [`OpenCalls::switch`] to it and [`OpenCalls::pop`] until it is empty find all open calls.
    pub fn next_open(&mut self) -> Option<u32> {
        if !self.current.is_empty() {
            return Some(self.stack);
        }
        self.elsewhere.keys().next().copied()
    }
}
