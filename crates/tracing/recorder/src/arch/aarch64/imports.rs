//! Calls of other modules' functions that pass by the procedure linkage table, through pointers that are loaded into
//! registers. They are not looked for on this processor; users are told of functions that may be called so.

use crate::analysis::image::Image;
use crate::analysis::special::is_silent;
use std::collections::{BTreeSet, HashSet};

/// A call through a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSite {
    /// Where it is.
    pub at: u64,
}

impl ImportSite {
    /// Whether code at an address, so many bytes of it, is a part of it.
    pub fn overlaps(&self, address: u64, size: u64) -> bool {
        self.at < address.wrapping_add(size) && address < self.at + 4
    }

    /// The same at the distance at which the module was loaded.
    pub fn rebase(self, bias: u64) -> ImportSite {
        ImportSite {
            at: self.at.wrapping_add(bias),
        }
    }

    /// What does the same with `target` itself in its place, if that is near.
    pub fn direct(&self, target: u64) -> Option<Vec<u8>> {
        Some(super::encode::bytes(&[super::encode::bl(self.at, target)?]))
    }
}

/// Names of functions that have pointers, but no stubs.
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
        // What starts and ends programs is only looked at.
        .filter(|name| !name.starts_with("_ITM_") && *name != "abort")
        .collect();
    names.into_iter().cloned().collect()
}
