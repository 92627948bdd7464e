//! The table of all strings, in which the first one is empty.

use hashbrown::HashMap;

/// All strings of a profile, each once.
pub(super) struct Strings {
    ids: HashMap<Box<[u8]>, u64>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings {
            ids: HashMap::from_iter([(Box::from(&b""[..]), 0)]),
        }
    }
}

impl Strings {
    /// Returns the number of a string. Bytes that are no UTF-8 are replaced, since protocol buffers allow none.
    pub(super) fn id(&mut self, text: &[u8]) -> u64 {
        let text = String::from_utf8_lossy(text);
        if let Some(id) = self.ids.get(text.as_bytes()) {
            return *id;
        }
        let id = self.ids.len() as u64;
        self.ids.insert(Box::from(text.as_bytes()), id);
        id
    }

    /// Returns all strings in the order of their numbers.
    pub(super) fn in_order(self) -> Vec<Box<[u8]>> {
        let mut list: Vec<(Box<[u8]>, u64)> = self.ids.into_iter().collect();
        list.sort_unstable_by_key(|(_, id)| *id);
        list.into_iter().map(|(text, _)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_a_number_and_the_empty_one_is_first() {
        let mut strings = Strings::default();
        assert_eq!(strings.id(b""), 0);
        assert_eq!(strings.id(b"a"), 1);
        assert_eq!(strings.id(b"b\xff"), 2);
        assert_eq!(strings.id(b"a"), 1);
        let texts = strings.in_order();
        let texts: Vec<&[u8]> = texts.iter().map(|text| &**text).collect();
        assert_eq!(texts, [&b""[..], b"a", "b\u{fffd}".as_bytes()]);
    }
}
