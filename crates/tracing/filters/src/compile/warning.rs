//! Warnings about rules and functions.

use crate::rules::ACTIONS;
use core::fmt;
use std::string::String;
use std::vec::Vec;

/// A warning about a rule or about functions. [`fmt::Display`] makes a line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A rule matches no function.
    NoFunction {
        /// The option and its text.
        rule: String,
        /// The names near to it, the nearest first.
        nearest: Vec<String>,
        /// True if the rule is a filter: unless another one matches, nothing is shown.
        filter: bool,
    },
    /// No module has the name in a rule.
    NoModule {
        /// The option and its text.
        rule: String,
        /// The module.
        module: String,
        /// The name of the nearest module.
        nearest: Option<String>,
        /// True if the word may be a mistyped action.
        doubtful: bool,
    },
    /// A source location matches no function.
    NoLocation {
        /// The option and its text.
        rule: String,
    },
    /// A trigger asks for the recovery of return addresses, which are never changed here.
    NothingToRecover {
        /// The option and its text.
        rule: String,
    },
    /// This number of functions has no known size. They are shown whatever their size is.
    UnknownSizes(u64),
    /// This number of functions has no known source file. They are hidden by a rule about locations.
    UnknownLocations(u64),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFunction {
                rule,
                nearest,
                filter,
            } => {
                write!(f, "{rule} matches no function")?;
                if *filter {
                    f.write_str(", and shows nothing")?;
                }
                if !nearest.is_empty() {
                    write!(f, "; the nearest names are {}", nearest.join(", "))?;
                }
                Ok(())
            }
            Self::NoModule {
                rule,
                module,
                nearest,
                doubtful,
            } => {
                write!(f, "{rule} matches nothing: ")?;
                if *doubtful {
                    write!(
                        f,
                        "`{module}` is neither an action nor the beginning of a module's name"
                    )?;
                } else {
                    write!(f, "no module's name begins with `{module}`")?;
                }
                if let Some(nearest) = nearest {
                    write!(f, "; the nearest module is {nearest}")?;
                }
                if *doubtful {
                    write!(f, "; actions are {}", ACTIONS.join(", "))?;
                }
                Ok(())
            }
            Self::NoLocation { rule } => write!(f, "{rule} matches the source file of no function"),
            Self::NothingToRecover { rule } => write!(
                f,
                "{rule}: `recover` has no effect: return addresses need no recovery here"
            ),
            Self::UnknownSizes(functions) => write!(
                f,
                "{functions} functions have no known size; -Z and `size=` do not hide them"
            ),
            Self::UnknownLocations(functions) => write!(
                f,
                "{functions} functions have no known source file and are hidden by -L; build with -g to keep them"
            ),
        }
    }
}
