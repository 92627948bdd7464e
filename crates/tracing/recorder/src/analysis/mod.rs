//! The analysis of a module: which of its functions can be patched, and where.
//!
//! [`prepare`] analyses each file once. [`partial_file`] and [`image`] read it. The processor's `scan` finds its
//! functions as [`candidates`], or a [`refusal`] for each that can't be patched. Some are left alone by their names
//! ([`special`], [`sanitizers`]) or because their code changes ([`written`]), or with their whole module ([`left_alone`]). [`observed`] lists the functions of the C
//! library whose calls the runtime must see.

#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
pub mod candidates;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
pub mod image;
pub mod left_alone;
pub mod observed;
pub mod partial_file;
pub mod prepare;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
pub mod refusal;
pub mod sanitizers;
pub mod special;
pub mod written;
