//! Records as text: a line for each, and indented lines below it for fields that have many parts.

use super::{Link, RecordPosition, Sink, Value};
use dioptra_tables::escape;
use std::io::{self, Write};

/// The number of opaque bytes shown at most; their length is always shown.
const BYTES_SHOWN: usize = 64;

pub struct Text<W: Write> {
    out: W,
    /// Indented lines that follow the record's own line.
    below: Vec<u8>,
}

impl<W: Write> Text<W> {
    pub fn new(out: W) -> Self {
        Text {
            out,
            below: Vec::new(),
        }
    }
}

impl<W: Write> Sink for Text<W> {
    fn begin(&mut self, (time, offset): RecordPosition, kind: &str) -> io::Result<()> {
        match time {
            Some(time) => write!(
                self.out,
                "{:>6}.{:09}",
                time / 1_000_000_000,
                time % 1_000_000_000
            )?,
            None => write!(self.out, "{:>16}", "-")?,
        }
        match offset {
            Some(offset) => write!(self.out, " {offset:#010x} {kind:<12}"),
            None => write!(self.out, " {:>10} {kind:<12}", "-"),
        }
    }

    fn field(&mut self, name: &'static str, value: Value<'_>) -> io::Result<()> {
        match value {
            Value::Chain(links) => {
                writeln!(self.below, "    {name}:")?;
                for link in links {
                    match link {
                        Link::Address(address) => writeln!(self.below, "        {address:#x}")?,
                        Link::Mark(mark) => writeln!(self.below, "      [{mark}]")?,
                    }
                }
                Ok(())
            }
            Value::Registers(registers) => {
                write!(self.below, "    {name}:")?;
                for (register, value) in registers {
                    write!(self.below, " {register}={value:#x}")?;
                }
                writeln!(self.below)
            }
            Value::List(list) => {
                writeln!(self.below, "    {name}:")?;
                for fields in list {
                    write!(self.below, "       ")?;
                    for (name, value) in fields {
                        write!(self.below, " {name}=")?;
                        write_simple(&mut self.below, value)?;
                    }
                    writeln!(self.below)?;
                }
                Ok(())
            }
            value => {
                write!(self.out, " {name}=")?;
                write_simple(&mut self.out, &value)
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        writeln!(self.out)?;
        self.out.write_all(&self.below)?;
        self.below.clear();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a value that has only one part.
fn write_simple(out: &mut impl Write, value: &Value<'_>) -> io::Result<()> {
    match value {
        Value::Number(number) => write!(out, "{number}"),
        Value::Task(id) => write!(out, "{}", id.cast_signed()),
        Value::Address(address) => write!(out, "{address:#x}"),
        Value::Flag(flag) => write!(out, "{flag}"),
        Value::Word(word) => write!(out, "{}", escape(word)),
        Value::Text(text) => write!(out, "{}", escape(&String::from_utf8_lossy(text))),
        Value::Bytes(bytes) => {
            write!(out, "{}:", bytes.len())?;
            for byte in bytes.iter().take(BYTES_SHOWN) {
                write!(out, "{byte:02x}")?;
            }
            if bytes.len() > BYTES_SHOWN {
                write!(out, "…")?;
            }
            Ok(())
        }
        // Only fields of the record itself have several parts.
        Value::Chain(_) | Value::Registers(_) | Value::List(_) => write!(out, "…"),
    }
}
