//! Searches for names.

/// A text that names contain.
pub struct Query {
    text: String,
    /// Whether case matters: only if the text has capitals.
    exact: bool,
}

impl Query {
    /// Makes a query; `None` for an empty text.
    pub fn new(text: &str) -> Option<Query> {
        (!text.is_empty()).then(|| Query {
            text: text.to_owned(),
            exact: text.chars().any(char::is_uppercase),
        })
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a name contains the text.
    pub fn matches(&self, name: &str) -> bool {
        match self.exact {
            true => name.contains(&self.text),
            false => name.to_lowercase().contains(&self.text),
        }
    }
}

/// A match: its place, its number among all matches, counted from 1, and the number of matches.
pub type Match = (usize, usize, usize);

/// Returns the first match behind `from`, or the last one before it. Continues from the other end if there is none.
/// `matches` are places in ascending order. `from` itself counts if `inclusive`.
pub fn choose(
    matches: impl Iterator<Item = usize>,
    from: Option<usize>,
    forward: bool,
    inclusive: bool,
) -> Option<Match> {
    let matches: Vec<usize> = matches.collect();
    let last = matches.len().checked_sub(1)?;
    // 1 if the place `from` itself belongs to the part before: it is skipped forward, or found backward.
    let passed = usize::from(forward != inclusive);
    let before = from.map(|from| matches.partition_point(|place| *place < from + passed));
    let chosen = match (before, forward) {
        (None, true) => 0,
        (None, false) => last,
        (Some(before), true) if before > last => 0,
        (Some(before), true) => before,
        (Some(before), false) => before.checked_sub(1).unwrap_or(last),
    };
    Some((matches[chosen], chosen + 1, matches.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_count_if_there_are_some() {
        let matches = |text, name| Query::new(text).expect("a text").matches(name);
        assert!(matches("get", "GetName") && matches("Get", "GetName"));
        assert!(!matches("GET", "GetName") && !matches("set", "GetName"));
        assert!(Query::new("").is_none());
    }

    #[test]
    fn searches_go_round() {
        let places = [2, 5, 9];
        let chosen = |from, forward, inclusive| {
            let found = choose(places.into_iter(), from, forward, inclusive);
            found.map(|(place, number, of)| {
                assert_eq!((places[number - 1], of), (place, 3));
                place
            })
        };
        for (from, next, previous, here) in [(0, 2, 9, 2), (2, 5, 9, 2), (5, 9, 2, 5), (9, 2, 5, 9)]
        {
            assert_eq!(chosen(Some(from), true, false), Some(next));
            assert_eq!(chosen(Some(from), false, false), Some(previous));
            assert_eq!(chosen(Some(from), true, true), Some(here));
        }
        assert_eq!(chosen(Some(20), false, false), Some(9));
        assert_eq!(chosen(Some(5), false, true), Some(5));
        assert_eq!(chosen(None, true, false), Some(2));
        assert_eq!(chosen(None, false, false), Some(9));
        assert_eq!(choose(std::iter::empty(), Some(1), true, false), None);
    }
}
