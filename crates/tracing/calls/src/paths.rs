//! Which calls lead to another one, shown or not.

use crate::{Call, Step, Walk};

/// Finds the open calls of a stream at the entries that are asked for: see [`View::paths`](crate::View::paths).
pub struct Paths<'t> {
    walk: Walk<'t>,
}

impl<'t> Paths<'t> {
    pub(crate) fn new(walk: Walk<'t>) -> Paths<'t> {
        Paths { walk }
    }

    /// The functions that lead to a call, the outermost first, itself not included. Calls must be asked for in the order
    /// in which they begin; nothing leads to one that is not found.
    pub fn to(&mut self, wanted: &Call) -> Vec<u32> {
        let found = self.walk.by_ref().any(|step| match step {
            Step::Enter { call, .. } => {
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
