//! Tables whose entries are numbered, and whose first entry is empty.

use hashbrown::HashMap;

/// Sequences of bytes, each once.
pub(crate) struct Distinct {
    ids: HashMap<Box<[u8]>, u64>,
    encoded: usize,
}

impl Default for Distinct {
    fn default() -> Self {
        Distinct {
            ids: HashMap::from_iter([(Box::from(&b""[..]), 0)]),
            encoded: encoded_size(0),
        }
    }
}

/// Returns the number of bytes of an entry in a protocol buffer, whose field has a number below 16.
fn encoded_size(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + length
}

impl Distinct {
    /// Returns the number of an entry.
    pub(crate) fn id(&mut self, bytes: &[u8]) -> u64 {
        if let Some(id) = self.ids.get(bytes) {
            return *id;
        }
        let id = self.ids.len() as u64;
        self.ids.insert(Box::from(bytes), id);
        self.encoded = self.encoded.saturating_add(encoded_size(bytes.len()));
        id
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of bytes of all entries in a protocol buffer.
    pub(crate) fn encoded(&self) -> usize {
        self.encoded
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

    /// Returns the strings as a table of bytes.
    pub(crate) fn table(&self) -> &Distinct {
        &self.0
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
    fn encoded_sizes_are_those_of_messages() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 3_000_000] {
            let mut message = crate::protobuf::Message::default();
            message.text(5, &vec![b'x'; length]);
            assert_eq!(encoded_size(length), message.bytes().len(), "{length}");
        }
    }

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
