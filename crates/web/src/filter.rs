//! Names that contain a text or match a regular expression.

use crate::failure::Failure;
use regex::{Regex, RegexBuilder};

/// The memory that a regular expression may take when it is compiled.
const REGEX_BYTES: usize = 1 << 20;

/// A condition on names. Case does not matter.
pub(crate) struct NameFilter(Regex);

impl NameFilter {
    pub(crate) fn new(text: &str, is_regex: bool) -> Result<NameFilter, Failure> {
        let pattern = match is_regex {
            true => text.to_owned(),
            false => regex::escape(text),
        };
        let regex = RegexBuilder::new(&pattern)
            .case_insensitive(true)
            .size_limit(REGEX_BYTES)
            .build();
        let regex = regex.map_err(|error| Failure::BadPattern(error.to_string()))?;
        Ok(NameFilter(regex))
    }

    pub(crate) fn passes(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_does_not_matter() {
        let plain = NameFilter::new("Vec<T>::push(", false).expect("a filter");
        assert!(plain.passes("alloc::vec<t>::push(self)") && !plain.passes("vec push"));
        let pattern = NameFilter::new("^std::.*push$", true).expect("a filter");
        assert!(pattern.passes("std::Vec::PUSH") && !pattern.passes("my::std::push"));
        assert!(NameFilter::new("a(", true).is_err());
        // Such a pattern would take gigabytes.
        assert!(NameFilter::new("(((a{1000}){1000}){1000})", true).is_err());
    }
}
