//! Rows of tables and trees: the counts of a profile by any dimensions, and call trees.

pub(crate) mod aggregate;
pub(crate) mod function_paths;
pub(crate) mod hierarchy;
pub(crate) mod paths;
pub(crate) mod tree;
