//! Tables whose entries are numbered, and whose first entry is empty.

use hashbrown::HashMap;

/// Sequences of bytes, each once.
pub(crate) struct Distinct {
    ids: HashMap<Box<[u8]>, u64>,
}

impl Default for Distinct {
    fn default() -> Self {
        Distinct {
            ids: HashMap::from_iter([(Box::from(&b""[..]), 0)]),
        }
    }
}

impl Distinct {
    /// Returns the number of an entry.
    pub(crate) fn id(&mut self, bytes: &[u8]) -> u64 {
        if let Some(id) = self.ids.get(bytes) {
            return *id;
        }
        let id = self.ids.len() as u64;
        self.ids.insert(Box::from(bytes), id);
        id
    }

    /// Returns all entries in the order of their numbers.
    pub(crate) fn in_order(self) -> Vec<Box<[u8]>> {
        let mut list: Vec<(Box<[u8]>, u64)> = self.ids.into_iter().collect();
        list.sort_unstable_by_key(|(_, id)| *id);
        list.into_iter().map(|(bytes, _)| bytes).collect()
    }
}

/// All strings of a profile, each once.
#[derive(Default)]
pub(crate) struct Strings(Distinct);

impl Strings {
    /// Returns the number of a string. Bytes that are no UTF-8 are replaced, since protocol buffers allow none.
    pub(crate) fn id(&mut self, text: &[u8]) -> u64 {
        self.0.id(String::from_utf8_lossy(text).as_bytes())
    }

    /// Returns all strings in the order of their numbers.
    pub(crate) fn in_order(self) -> Vec<Box<[u8]>> {
        self.0.in_order()
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
