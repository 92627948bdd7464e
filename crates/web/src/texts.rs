//! Names and facts as answers have them.

use crate::api::FactAnswer;
use dioptra_profile::EventProfile;
use dioptra_tables::{Facts, Unit};

/// Names of more bytes lose their middle.
const LONGEST: usize = 4096;

/// A name for an answer, and whether its middle was left out. Names may have megabytes.
pub(crate) fn shortened(name: &str) -> (String, bool) {
    if name.len() <= LONGEST {
        return (name.to_owned(), false);
    }
    let half = LONGEST / 2;
    let (mut start, mut end) = (half, name.len() - half);
    while !name.is_char_boundary(start) {
        start -= 1;
    }
    while !name.is_char_boundary(end) {
        end += 1;
    }
    (format!("{}…{}", &name[..start], &name[end..]), true)
}

/// A name for an answer.
pub(crate) fn name(name: &str) -> String {
    shortened(name).0
}

pub(crate) fn facts(facts: &Facts) -> Vec<FactAnswer> {
    let facts = facts.iter().map(|fact| FactAnswer {
        id: fact.id.clone(),
        severity: fact.severity.word().to_owned(),
        text: fact.text.clone(),
        value: fact.value.clone(),
    });
    facts.collect()
}

/// The unit of an event's weights, as tables have it.
pub(crate) fn unit(event: &EventProfile) -> Option<String> {
    let unit: Option<Unit> = dioptra_report::unit_of(event);
    unit.as_ref().and_then(Unit::id).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle() {
        let long = "é".repeat(1 << 20);
        let (short, cut) = shortened(&long);
        assert!(cut && short.len() <= LONGEST + 4 && short.contains('…'));
        assert_eq!(shortened("<script>"), ("<script>".to_owned(), false));
    }
}
