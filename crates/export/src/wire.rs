//! A reader of protocol buffers, which borrows from the bytes.

use crate::import::ImportError;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// A text, a message or a packed list.
    Bytes(Wire<'a>),
    /// A number of fixed size, which no field that is read here has.
    Fixed,
}

/// The bytes of a message that are still to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire<'a> {
    pub bytes: &'a [u8],
    /// The offset of `bytes` in the content.
    pub offset: u64,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Wire<'a> {
        Wire { bytes, offset: 0 }
    }

    /// Makes an error about the next byte.
    pub(crate) fn error(&self, why: impl Into<String>) -> ImportError {
        ImportError::Bytes {
            offset: self.offset,
            of: " of the decompressed profile",
            why: why.into(),
        }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        self.offset += length as u64;
        taken
    }

    /// Reads a varint.
    pub(crate) fn number(&mut self) -> Result<u64, ImportError> {
        let mut value = 0_u64;
        for (place, byte) in self.bytes.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return Err(self.error("a number has more than 64 bits"));
            }
            value |= bits << (7 * place);
            if *byte < 0x80 {
                self.take(place + 1);
                return Ok(value);
            }
        }
        match self.bytes.len() < 10 {
            true => Err(self.error("the profile ends within a number")),
            false => Err(self.error("a number has more than 64 bits")),
        }
    }

    /// Reads the next field: its number and value. `None` at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u64, Value<'a>)>, ImportError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let start = *self;
        let tag = self.number()?;
        let field = tag >> 3;
        if field == 0 {
            return Err(start.error("a field has the number 0"));
        }
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            2 => {
                let length = self.number()?;
                match usize::try_from(length) {
                    Ok(length) if length <= self.bytes.len() => {
                        let offset = self.offset;
                        let bytes = self.take(length);
                        Value::Bytes(Wire { bytes, offset })
                    }
                    _ => {
                        return Err(start.error(format!(
                            "a field of {length} bytes reaches beyond the end, {} bytes from here",
                            self.bytes.len()
                        )));
                    }
                }
            }
            1 if self.bytes.len() >= 8 => {
                self.take(8);
                Value::Fixed
            }
            5 if self.bytes.len() >= 4 => {
                self.take(4);
                Value::Fixed
            }
            1 | 5 => return Err(start.error("the profile ends within a number")),
            other => return Err(start.error(format!("a field has the unknown wire type {other}"))),
        };
        Ok(Some((field, value)))
    }

    /// Passes the numbers of a repeated field on, which is packed or has one number.
    pub(crate) fn numbers(value: Value<'a>, into: &mut Vec<u64>) -> Result<(), ImportError> {
        match value {
            Value::Number(number) => into.push(number),
            Value::Bytes(mut packed) => {
                while !packed.bytes.is_empty() {
                    into.push(packed.number()?);
                }
            }
            Value::Fixed => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_their_offsets() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0, 0];
        let mut wire = Wire::new(&bytes);
        assert_eq!(wire.field().unwrap(), Some((1, Value::Number(150))));
        let Some((2, Value::Bytes(text))) = wire.field().unwrap() else {
            panic!("a text");
        };
        assert_eq!((text.bytes, text.offset), (&b"hi"[..], 5));
        assert_eq!(wire.field().unwrap(), Some((3, Value::Fixed)));
        assert_eq!(wire.field().unwrap(), None);
    }

    #[test]
    fn giant_numbers_and_lengths_are_errors_at_their_offset() {
        for (bytes, offset) in [
            (&[0x08, 0xff, 0xff, 0xff][..], 1),
            (
                &[
                    0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
                ],
                1,
            ),
            (
                &[
                    0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
                ],
                1,
            ),
            (&[0x12, 0xff, 0xff, 0xff, 0xff, 0x0f, 1], 0),
            (&[0x0b], 0),
            (&[0x00, 0x01], 0),
            (&[0x09, 1, 2], 0),
        ] {
            match Wire::new(bytes).field() {
                Err(ImportError::Bytes { offset: found, .. }) => assert_eq!(found, offset),
                other => panic!("{bytes:x?}: {other:?}"),
            }
        }
        let most = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ];
        assert_eq!(
            Wire::new(&most).field().unwrap(),
            Some((1, Value::Number(u64::MAX)))
        );
    }
}
