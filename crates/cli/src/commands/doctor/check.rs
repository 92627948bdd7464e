//! One finding of the doctor.

use serde::Serialize;
use serde_json::Value;

/// The extent to which a checked thing works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Works fully.
    Ok,
    /// Works in part, or slower.
    Limited,
    /// Does not work.
    Missing,
}

impl Status {
    /// Returns the status as one word, the same in text and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// A short and stable id, for programs.
    pub id: &'static str,
    /// The name shown to people.
    pub name: &'static str,
    /// The extent to which the checked thing works.
    pub status: Status,
    /// The text of the finding.
    pub found: String,
    /// The finding for programs, such as a number or a list; null if there is only text.
    pub value: Value,
    /// The consequence: features that do not work because of this finding.
    pub cost: Option<String>,
    /// The command or step that mends it.
    pub remedy: Option<String>,
}

impl Check {
    /// Makes the finding of something that works.
    pub fn ok(id: &'static str, name: &'static str, found: impl Into<String>) -> Check {
        Check {
            id,
            name,
            status: Status::Ok,
            found: found.into(),
            value: Value::Null,
            cost: None,
            remedy: None,
        }
    }

    /// Sets a worse status, and the consequence of it.
    pub fn but(mut self, status: Status, cost: impl Into<String>) -> Check {
        self.status = status;
        self.cost = Some(cost.into());
        self
    }

    /// Adds a remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Check {
        self.remedy = Some(remedy.into());
        self
    }

    /// Adds a value for programs.
    pub fn value(mut self, value: impl Into<Value>) -> Check {
        self.value = value.into();
        self
    }
}
