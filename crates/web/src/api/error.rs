//! Errors as the page sees them.

use serde::Serialize;
use ts_rs::TS;

/// The answer to a request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ErrorAnswer {
    /// The error.
    pub error: ErrorBody,
}

/// An error with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ErrorBody {
    /// A short, stable name for programs, such as `no_such_function`.
    pub code: String,
    /// The error as a sentence.
    pub text: String,
    /// The action that helps.
    pub remedy: Option<String>,
}
