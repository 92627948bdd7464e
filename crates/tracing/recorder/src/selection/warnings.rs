//! Warnings at the end of a recording about the choice of functions.

use dioptra_filters::Warning;
use std::fmt;

/// A warning about the choice of functions. Its text form is a sentence for users; a pattern stands in it as the user has
/// typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectionWarning {
    /// No compiler has prepared these programs for tracing, so their functions are patched in memory.
    NotInstrumented {
        /// The names of the programs, at least one.
        programs: Vec<String>,
    },
    /// A pattern matches functions that cannot be patched, and no other.
    OnlyRefused {
        /// The option and its text.
        rule: String,
        /// The first of these functions.
        functions: Vec<UnpatchedFunction>,
    },
    /// A rule or a pattern matches nothing, or less than it seems to.
    Rule(Warning),
}

/// A function that was asked for and cannot be patched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnpatchedFunction {
    /// Its name.
    pub name: String,
    /// The reason, in words.
    pub reason: &'static str,
}

impl fmt::Display for SelectionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectionWarning::NotInstrumented { programs } => match programs.as_slice() {
                [program] => write!(
                    f,
                    "{program} is not instrumented: its functions are patched in memory"
                ),
                programs => write!(
                    f,
                    "{} programs ({}) are not instrumented: their functions are patched in memory",
                    programs.len(),
                    programs.join(", ")
                ),
            },
            SelectionWarning::OnlyRefused { rule, functions } => {
                write!(f, "{rule} matches only functions that cannot be patched: ")?;
                for (index, UnpatchedFunction { name, reason }) in functions.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{name} ({reason})")?;
                }
                Ok(())
            }
            SelectionWarning::Rule(warning) => warning.fmt(f),
        }
    }
}
