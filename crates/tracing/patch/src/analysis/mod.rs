//! The analysis of a module: which of its functions can be patched, and where.
//!
//! [`scan`] finds the functions of an [`image`], which unwind tables have [`described`], as [`candidates`], or a
//! [`refusal`] for each that can't be patched. Some are left alone by their names ([`special`], [`sanitizers`]) or because their code changes
//! ([`written`]). [`observed`] lists the functions of the C library whose calls the runtime must see.

pub mod candidates;
pub mod described;
pub mod image;
pub mod observed;
pub mod refusal;
pub mod sanitizers;
pub mod scan;
pub mod special;
pub mod work;
pub mod written;
