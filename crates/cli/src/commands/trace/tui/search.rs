//! What is searched for.

/// A text that names contain.
pub struct Query {
    text: String,
    /// Capitals are told apart only if the text has some.
    exact: bool,
}

impl Query {
    /// Nothing is searched for with an empty text.
    pub fn new(text: &str) -> Option<Query> {
        (!text.is_empty()).then(|| Query {
            text: text.to_owned(),
            exact: text.chars().any(char::is_uppercase),
        })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a name contains it.
    pub fn matches(&self, name: &str) -> bool {
        match self.exact {
            true => name.contains(&self.text),
            false => name.to_lowercase().contains(&self.text),
        }
    }
}

/// Of the places of matches, in their order: the first behind `from`, or the last before it; from the other end if there is
/// none. `from` itself counts if that is said.
pub fn choose(
    matches: &[usize],
    from: Option<usize>,
    forward: bool,
    inclusive: bool,
) -> Option<usize> {
    let last = matches.len().checked_sub(1)?;
    let Some(from) = from else {
        return Some(if forward { 0 } else { last });
    };
    if forward {
        let before = matches.partition_point(|place| *place < from + usize::from(!inclusive));
        return Some(if before > last { 0 } else { before });
    }
    let before = matches.partition_point(|place| *place < from + usize::from(inclusive));
    Some(before.checked_sub(1).unwrap_or(last))
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
        let next = |from| choose(&places, Some(from), true, false);
        let previous = |from| choose(&places, Some(from), false, false);
        assert_eq!([next(0), next(2), next(5), next(9)], [0, 1, 2, 0].map(Some));
        assert_eq!(
            [previous(0), previous(2), previous(5), previous(20)],
            [2, 2, 0, 2].map(Some)
        );
        assert_eq!(choose(&places, Some(5), true, true), Some(1));
        assert_eq!(choose(&places, None, true, false), Some(0));
        assert_eq!(choose(&[], Some(1), true, false), None);
    }
}
