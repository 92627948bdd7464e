//! The calls that lead to another one, shown or not.

use crate::{Call, StreamWalk, WalkStep};

/// A finder of the open calls of a stream at given entries: see [`View::paths`](crate::View::paths).
pub struct CallPaths<'t> {
    walk: StreamWalk<'t>,
}

impl<'t> CallPaths<'t> {
    pub(crate) fn new(walk: StreamWalk<'t>) -> CallPaths<'t> {
        CallPaths { walk }
    }

    /// Returns the functions that lead to a call, the outermost first, without the call itself. Calls must be asked
    /// for in the order in which they begin. Returns no functions for a call that is not found.
    pub fn to(&mut self, wanted: &Call) -> Vec<u32> {
        let found = self.walk.by_ref().any(|step| match step {
            WalkStep::Enter { call, .. } => {
                call.function == wanted.function && call.entered == wanted.entered
            }
            _ => false,
        });
        let open = self.walk.open();
        let around = open.len().saturating_sub(1);
        match found {
            true => open.take(around).map(|call| call.function).collect(),
            false => Vec::new(),
        }
    }
}
