//! Records as JSON: one object a line for each record.
//!
//! Addresses are hexadecimal text, because many JSON readers' numbers are too short for them. Opaque bytes are
//! hexadecimal digits.

use super::{Link, RecordPosition, Sink, Value};
use std::io::{self, Write};

pub struct Json<W: Write> {
    out: W,
}

impl<W: Write> Json<W> {
    pub fn new(out: W) -> Self {
        Json { out }
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        Ok(serde_json::to_writer(&mut self.out, text)?)
    }

    fn value(&mut self, value: &Value<'_>) -> io::Result<()> {
        match value {
            Value::Number(number) => write!(self.out, "{number}"),
            Value::Task(id) => write!(self.out, "{}", id.cast_signed()),
            Value::Address(address) => write!(self.out, "\"{address:#x}\""),
            Value::Flag(flag) => write!(self.out, "{flag}"),
            Value::Word(word) => self.string(word),
            Value::Text(text) => self.string(&String::from_utf8_lossy(text)),
            Value::Bytes(bytes) => {
                write!(self.out, "\"")?;
                for byte in *bytes {
                    write!(self.out, "{byte:02x}")?;
                }
                write!(self.out, "\"")
            }
            Value::Chain(links) => {
                write!(self.out, "[")?;
                for (index, link) in links.iter().enumerate() {
                    self.comma(index)?;
                    match link {
                        Link::Address(address) => write!(self.out, "\"{address:#x}\"")?,
                        Link::Mark(mark) => self.string(mark)?,
                    }
                }
                write!(self.out, "]")
            }
            Value::Registers(registers) => {
                write!(self.out, "{{")?;
                for (index, (name, value)) in registers.iter().enumerate() {
                    self.comma(index)?;
                    self.string(name)?;
                    write!(self.out, ":\"{value:#x}\"")?;
                }
                write!(self.out, "}}")
            }
            Value::List(list) => {
                write!(self.out, "[")?;
                for (index, fields) in list.iter().enumerate() {
                    self.comma(index)?;
                    write!(self.out, "{{")?;
                    for (index, (name, value)) in fields.iter().enumerate() {
                        self.comma(index)?;
                        self.string(name)?;
                        write!(self.out, ":")?;
                        self.value(value)?;
                    }
                    write!(self.out, "}}")?;
                }
                write!(self.out, "]")
            }
        }
    }

    fn comma(&mut self, index: usize) -> io::Result<()> {
        if index > 0 {
            write!(self.out, ",")?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for Json<W> {
    fn begin(&mut self, (time, offset): RecordPosition, kind: &str) -> io::Result<()> {
        match offset {
            Some(offset) => write!(self.out, "{{\"offset\":{offset},\"type\":")?,
            None => write!(self.out, "{{\"offset\":null,\"type\":")?,
        }
        self.string(kind)?;
        write!(self.out, ",\"time\":")?;
        match time {
            Some(time) => write!(self.out, "{time}"),
            None => write!(self.out, "null"),
        }
    }

    fn field(&mut self, name: &'static str, value: Value<'_>) -> io::Result<()> {
        write!(self.out, ",\"{name}\":")?;
        self.value(&value)
    }

    fn end(&mut self) -> io::Result<()> {
        writeln!(self.out, "}}")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
