//! Calls of other modules' functions that bypass the procedure linkage table, through pointers that are loaded into
//! registers.
//!
//! They are not looked for on this processor. Users get the names of functions that may be called so.

use crate::analysis::image::Image;
use crate::analysis::special::is_silent;
use std::collections::{BTreeSet, HashSet};

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
