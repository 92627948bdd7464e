//! Facts: the remarks that a reader of a table needs besides its cells.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use crate::escape::escape;
use crate::remedy::Remedy;

/// The degree to which a fact changes what the table means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Where the numbers come from, how they were filtered or scaled.
    Info,
    /// Something else was done than the user asked for: another event, another unwinder.
    Fallback,
    /// Numbers contradict each other, or may be wrong.
    Warning,
    /// Something is missing from the numbers: lost records, throttling, skipped input, unresolved addresses.
    Loss,
}

impl Severity {
    /// Returns the word that names this severity in text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Fallback => "fallback",
            Severity::Warning => "warning",
            Severity::Loss => "loss",
        }
    }
}

/// One remark about a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// The key in JSON, such as `lost_records`; unique within its [`Facts`].
    #[serde(skip)]
    pub id: String,
    /// The degree to which the fact changes what the table means.
    pub severity: Severity,
    /// One sentence for people, without a full stop: what, how much, and the remedy if there is one.
    pub text: String,
    /// The same statement for programs: a number, or any other JSON value.
    pub value: Value,
    /// Remedies that the text does not spell yet ([`Facts::spell_remedies`]).
    #[serde(skip)]
    pub remedies: Vec<Remedy>,
}

/// An ordered list of facts, each with an id of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    list: Vec<Fact>,
}

impl Facts {
    /// Makes an empty list.
    pub fn new() -> Facts {
        Facts::default()
    }

    /// Adds a fact at the end and returns the id under which it is kept: `id`, or `id_2`, `id_3`, … if an earlier fact
    /// has it already, since no fact may silently replace another.
    pub fn add(
        &mut self,
        severity: Severity,
        id: impl Into<String>,
        text: impl Into<String>,
        value: impl Into<Value>,
    ) -> &str {
        let wanted: String = id.into();
        let mut id = wanted.clone();
        let mut number = 1_u64;
        while self.get(&id).is_some() {
            number += 1;
            id = format!("{wanted}_{number}");
        }
        let place = self.list.len();
        self.list.push(Fact {
            id,
            severity,
            text: text.into(),
            value: value.into(),
            remedies: Vec::new(),
        });
        &self.list[place].id
    }

    /// Proposes a remedy for the fact that was added last.
    pub fn propose(&mut self, remedy: Remedy) {
        if let Some(fact) = self.list.last_mut() {
            fact.remedies.push(remedy);
        }
    }

    /// Adds the remedies' words to the texts of their facts, behind a semicolon. `words` returns an instruction, such as
    /// "record with -g".
    pub fn spell_remedies(&mut self, words: impl Fn(&Remedy) -> String) {
        for fact in &mut self.list {
            let remedies = std::mem::take(&mut fact.remedies);
            if !remedies.is_empty() {
                let words: Vec<String> = remedies.iter().map(&words).collect();
                fact.text = format!("{}; {}", fact.text, words.join(", or "));
            }
        }
    }

    /// Adds all facts of `other` at the end, under new ids where theirs are taken (see [`Facts::add`]).
    pub fn append(&mut self, other: Facts) {
        for fact in other.list {
            self.add(fact.severity, fact.id, fact.text, fact.value);
            fact.remedies
                .into_iter()
                .for_each(|remedy| self.propose(remedy));
        }
    }

    /// Returns the fact with this id.
    pub fn get(&self, id: &str) -> Option<&Fact> {
        self.list.iter().find(|fact| fact.id == id)
    }

    /// Returns all facts in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Fact> {
        self.list.iter()
    }

    /// Returns the number of facts.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there are no facts.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns true if a fact says that something is missing from the numbers.
    pub fn has_loss(&self) -> bool {
        self.iter().any(|fact| fact.severity == Severity::Loss)
    }

    /// Writes one `# ` line a fact, all severities, in their order: for standard error beside a rendering that has no
    /// place for facts.
    ///
    /// # Errors
    /// Returns only the errors of the writer.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        self.iter().try_for_each(|fact| write_fact(fact, out))
    }
}

impl<'a> IntoIterator for &'a Facts {
    type Item = &'a Fact;
    type IntoIter = std::slice::Iter<'a, Fact>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Returns a fact as a comment line, which names the severity unless the fact is information.
pub fn fact_line(fact: &Fact) -> String {
    match fact.severity {
        Severity::Info => format!("# {}", escape(&fact.text)),
        severity => format!("# {}: {}", severity.word(), escape(&fact.text)),
    }
}

/// Writes a fact as a comment line.
pub(crate) fn write_fact(fact: &Fact, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", fact_line(fact))
}

/// A JSON object from each fact's id to the fact, in order.
impl Serialize for Facts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|fact| (&fact.id, fact)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fact_replaces_another() {
        let mut facts = Facts::new();
        assert_eq!(
            facts.add(Severity::Loss, "lost", "3 records lost", 3),
            "lost"
        );
        assert_eq!(
            facts.add(Severity::Loss, "lost", "4 records lost", 4),
            "lost_2"
        );
        let mut more = Facts::new();
        more.add(Severity::Info, "lost", "none\nlost", Value::Null);
        facts.append(more);
        assert_eq!(
            serde_json::to_string(&facts).unwrap(),
            r#"{"lost":{"severity":"loss","text":"3 records lost","value":3},"#.to_owned()
                + r#""lost_2":{"severity":"loss","text":"4 records lost","value":4},"#
                + r#""lost_3":{"severity":"info","text":"none\nlost","value":null}}"#
        );
        let mut out = Vec::new();
        facts.write_text(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "# loss: 3 records lost\n# loss: 4 records lost\n# none\\nlost\n"
        );
        assert!(facts.has_loss());
        assert_eq!(facts.len(), 3);
    }
}
