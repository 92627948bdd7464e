//! Calls of other modules' functions that bypass the procedure linkage table, through pointers that are loaded into
//! registers.
//!
//! They are not looked for on this processor. Users get the names of functions that may be called so.

use crate::analysis::image::Image;
use crate::analysis::special::is_silent;
use std::collections::{BTreeSet, HashSet};

/// A call through a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSite {
    /// The address of the call.
    pub at: u64,
}

impl ImportSite {
    /// Returns whether `size` bytes of code at `address` overlap the call.
    pub fn overlaps(&self, address: u64, size: u64) -> bool {
        self.at < address.wrapping_add(size) && address < self.at + 4
    }

    /// Returns the call at the distance at which the module was loaded.
    pub fn rebase(self, bias: u64) -> ImportSite {
        ImportSite {
            at: self.at.wrapping_add(bias),
        }
    }

    /// Returns a call of `target` itself for the same place; `None` if `target` is out of reach.
    pub fn direct(&self, target: u64) -> Option<Vec<u8>> {
        Some(super::encode::bytes(&[super::encode::bl(self.at, target)?]))
    }
}

/// Returns the names of functions that have pointers, but no stubs.
pub fn through_registers(image: &Image<'_>) -> Vec<String> {
    let stubs: HashSet<&str> = image
        .stubs
        .values()
        .map(|stub| stub.name.as_str())
        .collect();
    let names: BTreeSet<&String> = image
        .imports
        .values()
        .filter(|name| !stubs.contains(name.as_str()) && !is_silent(name))
        // The code that starts and ends programs only looks at the pointers of these functions.
        .filter(|name| !name.starts_with("_ITM_") && *name != "abort")
        .collect();
    names.into_iter().cloned().collect()
}
