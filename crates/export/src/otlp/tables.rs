//! The tables of a request. Entries of a table differ from each other, and the first one is empty.

use crate::protobuf::Message;
use crate::strings::{Distinct, Strings};

/// The fields of `ProfilesDictionary`.
mod table_field {
    pub const MAPPINGS: u64 = 1;
    pub const LOCATIONS: u64 = 2;
    pub const FUNCTIONS: u64 = 3;
    pub const LINKS: u64 = 4;
    pub const STRINGS: u64 = 5;
    pub const ATTRIBUTES: u64 = 6;
    pub const STACKS: u64 = 7;
}

/// The number of tables that grow. That of links has its empty entry only.
const TABLES: usize = 6;

/// The bytes of the table of links: a tag, and the length of the empty entry.
const LINKS_SIZE: usize = 2;

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute<'a> {
    Text(&'a str),
    Number(u32),
}

/// A place in memory that a module's file is said to lie at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappingEntry<'a> {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub file: &'a [u8],
    /// Hexadecimal digits.
    pub build_id: Option<&'a str>,
}

/// The numbers of entries at some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark([usize; TABLES]);

/// The tables, filled while profiles refer to entries.
///
/// The format's references have 31 bits. Entries take more than one byte each, and a message has less than 2 GiB.
#[derive(Default)]
pub(crate) struct Tables {
    mappings: Distinct,
    locations: Distinct,
    functions: Distinct,
    strings: Strings,
    attributes: Distinct,
    stacks: Distinct,
    /// Messages that are used again and again.
    item: Message,
    inner: Message,
    room: Message,
}

/// Returns a value of the type `AnyValue`.
pub(crate) fn any_text(text: &str) -> Message {
    let mut value = Message::default();
    value.text(1, text.as_bytes());
    value
}

impl Tables {
    fn all(&self) -> [&Distinct; TABLES] {
        [
            &self.mappings,
            &self.locations,
            &self.functions,
            self.strings.table(),
            &self.attributes,
            &self.stacks,
        ]
    }

    /// Returns the number of entries of each table.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.all().map(Distinct::len))
    }

    /// Returns the number of bytes of the encoded tables.
    pub(crate) fn encoded(&self) -> usize {
        let sizes = self.all().map(Distinct::encoded);
        sizes.iter().fold(LINKS_SIZE, |sum, size| sum + size)
    }

    /// Returns the number of a string.
    pub(crate) fn string(&mut self, text: &str) -> u64 {
        self.strings.id(text.as_bytes())
    }

    /// Returns the number of an attribute.
    pub(crate) fn attribute(&mut self, key: &str, value: Attribute<'_>) -> u64 {
        let key = self.string(key);
        self.inner.clear();
        match value {
            Attribute::Text(text) => self.inner.text(1, text.as_bytes()),
            Attribute::Number(number) => self.inner.stated(3, u64::from(number)),
        }
        self.item.clear();
        self.item.number(1, key);
        self.item.message(2, &self.inner);
        self.attributes.id(self.item.bytes())
    }

    /// Returns the number of a stack, whose innermost location is first.
    pub(crate) fn stack(&mut self, locations: impl IntoIterator<Item = u64>) -> u64 {
        self.item.clear();
        self.item.packed(1, locations, &mut self.room);
        self.stacks.id(self.item.bytes())
    }

    /// Returns the number of a location; `lines` are pairs of a function and a line, the innermost one first.
    pub(crate) fn location(
        &mut self,
        mapping: u64,
        address: u64,
        lines: &[(u64, u32)],
        attribute: Option<u64>,
    ) -> u64 {
        self.item.clear();
        self.item.number(1, mapping);
        self.item.number(2, address);
        for (function, line) in lines {
            self.inner.clear();
            self.inner.number(1, *function);
            self.inner.number(2, u64::from(*line));
            self.item.message(3, &self.inner);
        }
        self.item.packed(4, attribute, &mut self.room);
        self.locations.id(self.item.bytes())
    }

    /// Returns the number of a function.
    pub(crate) fn function(&mut self, name: &str, file: &str) -> u64 {
        let name = self.string(name);
        let file = self.string(file);
        self.inner.clear();
        self.inner.number(1, name);
        self.inner.number(3, file);
        self.functions.id(self.inner.bytes())
    }

    /// Returns the number of a mapping.
    pub(crate) fn mapping(&mut self, entry: &MappingEntry<'_>) -> u64 {
        let build_id = entry.build_id.map(|text| {
            let key = "process.executable.build_id.gnu";
            self.attribute(key, Attribute::Text(text))
        });
        let file = self.strings.id(entry.file);
        self.item.clear();
        self.item.number(1, entry.start);
        self.item.number(2, entry.end);
        self.item.number(3, entry.offset);
        self.item.number(4, file);
        self.item.packed(5, build_id, &mut self.room);
        self.mappings.id(self.item.bytes())
    }

    /// Returns the message of all tables with the entries that they had at the mark.
    pub(crate) fn encode(self, mark: Mark) -> Message {
        let mut dictionary = Message::default();
        // Each table begins with an empty entry, that of links, too.
        dictionary.text(table_field::LINKS, b"");
        let tables = [
            (table_field::MAPPINGS, self.mappings.in_order()),
            (table_field::LOCATIONS, self.locations.in_order()),
            (table_field::FUNCTIONS, self.functions.in_order()),
            (table_field::STRINGS, self.strings.in_order()),
            (table_field::ATTRIBUTES, self.attributes.in_order()),
            (table_field::STACKS, self.stacks.in_order()),
        ];
        for ((field, entries), marked) in tables.into_iter().zip(mark.0) {
            for entry in entries.into_iter().take(marked) {
                dictionary.text(field, &entry);
            }
        }
        dictionary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoded_size_is_known_beforehand() {
        let mut tables = Tables::default();
        let empty = Tables::default().encode(tables.mark());
        assert_eq!(tables.encoded(), empty.bytes().len());
        let function = tables.function("main", "main.c");
        let kind = tables.attribute("profile.frame.type", Attribute::Text("native"));
        let mapping = tables.mapping(&MappingEntry {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            file: b"/bin/true",
            build_id: Some("00ff"),
        });
        let location = tables.location(mapping, 0x1234, &[(function, 7)], Some(kind));
        tables.stack([location]);
        let mark = tables.mark();
        let size = tables.encoded();
        // Entries behind the mark are left out.
        tables.function("other", "other.c");
        assert!(tables.encoded() > size);
        assert_eq!(tables.encode(mark).bytes().len(), size);
    }
}
