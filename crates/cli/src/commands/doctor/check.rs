//! One finding of the doctor.

use serde::Serialize;
use serde_json::Value;

/// How well something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Fully.
    Ok,
    /// In part, or slower.
    Limited,
    /// Not at all.
    Missing,
}

impl Status {
    /// The word in text, as in JSON.
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
    /// Short and stable, for programs.
    pub id: &'static str,
    /// For people.
    pub name: &'static str,
    /// How well it works.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// The same for programs, where there is a number, a list or the like.
    pub value: Value,
    /// What does not work because of it.
    pub cost: Option<String>,
    /// What to type or do.
    pub remedy: Option<String>,
}

impl Check {
    /// Something that works.
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

    /// The same, but limited or missing, with what that costs.
    pub fn but(mut self, status: Status, cost: impl Into<String>) -> Check {
        self.status = status;
        self.cost = Some(cost.into());
        self
    }

    /// The same with a remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Check {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same with a value for programs.
    pub fn value(mut self, value: impl Into<Value>) -> Check {
        self.value = value.into();
        self
    }
}
