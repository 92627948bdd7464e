//! An encoder of protocol buffers: the few wire types that the messages of profiles need.
//!
//! A library would bring generated messages that hold the whole profile in memory. Here each sample is encoded and
//! forgotten.

/// A message that is being encoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

/// The wire type of varints.
const VARINT: u64 = 0;
/// The wire type of numbers of eight bytes.
const FIXED: u64 = 1;
/// The wire type of texts, messages and packed lists.
const DELIMITED: u64 = 2;

impl Message {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Adds a number. Zero is the default, which is left out.
    pub(crate) fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(value);
        }
    }

    /// Adds a number, zero as well: for fields whose absence means something else.
    pub(crate) fn stated(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(value);
    }

    /// Adds a number of the type `int32` or `int64`.
    pub(crate) fn signed(&mut self, field: u64, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    /// Adds a number of eight bytes. Zero is the default, which is left out.
    pub(crate) fn fixed(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3 | FIXED);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Adds a list of numbers of eight bytes.
    pub(crate) fn packed_fixed(&mut self, field: u64, values: &[u64]) {
        if !values.is_empty() {
            self.varint(field << 3 | DELIMITED);
            self.varint(values.len() as u64 * 8);
            for value in values {
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Adds a truth value.
    pub(crate) fn flag(&mut self, field: u64, value: bool) {
        self.number(field, u64::from(value));
    }

    /// Adds a text, also an empty one.
    pub(crate) fn text(&mut self, field: u64, text: &[u8]) {
        self.varint(field << 3 | DELIMITED);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    /// Adds a message within this one.
    pub(crate) fn message(&mut self, field: u64, message: &Message) {
        self.text(field, &message.bytes);
    }

    /// Adds a list of numbers. `room` is kept between calls, so that none allocates.
    pub(crate) fn packed(
        &mut self,
        field: u64,
        values: impl IntoIterator<Item = u64>,
        room: &mut Message,
    ) {
        room.clear();
        for value in values {
            room.varint(value);
        }
        if !room.bytes.is_empty() {
            self.message(field, room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_encoding_s_documentation() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.text(2, b"testing");
        assert_eq!(
            message.bytes(),
            [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]
        );
        message.clear();
        message.packed(6, [3, 270, 86942], &mut Message::default());
        assert_eq!(
            message.bytes(),
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
    }

    #[test]
    fn numbers_of_eight_bytes_have_the_lowest_one_first() {
        let mut message = Message::default();
        message.fixed(3, 1);
        message.fixed(3, 0);
        assert_eq!(message.bytes(), [0x19, 1, 0, 0, 0, 0, 0, 0, 0]);
        message.clear();
        message.packed_fixed(5, &[0x0102]);
        message.packed_fixed(5, &[]);
        assert_eq!(message.bytes(), [0x2a, 8, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_largest_number_has_ten_bytes() {
        let mut message = Message::default();
        message.number(1, u64::MAX);
        assert_eq!(message.bytes().len(), 11);
        message.clear();
        message.number(1, 0);
        assert!(message.bytes().is_empty());
    }
}
