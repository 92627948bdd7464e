//! `dioptra dump`: every record in full, in time order.

mod bursts;
mod fields;
mod json;
mod registers;
mod text;

use super::profiles::Recording;
use crate::screen::{Spelling, stdout};
use anyhow::bail;
use bursts::{BURST, Bursts};
use clap::ValueEnum;
use dioptra_perfdata::{FileRecord, ReadSummary};
use dioptra_perfevents::record::RecordType;
use fields::Fields;
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `dioptra dump`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra dump | less                        all records of perf.data
  dioptra dump --type SAMPLE -i other.data   its samples only
  dioptra dump --format json | jq -c 'select(.type == \"COMM\")'")]
pub struct Arguments {
    /// The profile; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,
    /// How to show the records
    #[arg(long, value_enum, default_value_t = Shape::Text)]
    format: Shape,
    /// Show records of this type only, such as SAMPLE or MMAP2; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    kinds: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// A line for each record; what has many parts, such as a call chain, on indented lines below it
    Text,
    /// An object for each record, one a line
    Json,
}

/// A record's time, and its offset in the file; bursts of windows lie in a section and have none.
type Place = (Option<u64>, Option<u64>);

/// Where records go: one after the other, each as fields.
trait Sink {
    /// Starts a record.
    fn begin(&mut self, place: Place, kind: &str) -> io::Result<()>;
    /// Adds a field to it.
    fn field(&mut self, name: &'static str, value: Value<'_>) -> io::Result<()>;
    /// Ends it.
    fn end(&mut self) -> io::Result<()>;
    /// Writes what it still holds.
    fn flush(&mut self) -> io::Result<()>;
}

/// A field's value.
enum Value<'a> {
    Number(u64),
    /// A process's or thread's number; -1 is nobody's.
    Task(u32),
    Address(u64),
    Flag(bool),
    Word(&'a str),
    /// Text of any encoding.
    Text(&'a [u8]),
    /// Opaque bytes.
    Bytes(&'a [u8]),
    /// Addresses and words among them.
    Chain(&'a [Link]),
    /// Named numbers.
    Registers(&'a [(String, u64)]),
    /// Equal things, each of fields.
    List(&'a [Vec<(&'static str, Value<'a>)>]),
}

/// An entry of a call chain.
enum Link {
    Address(u64),
    /// What the addresses after it are of.
    Mark(String),
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let recording = super::profiles::open(&arguments.input)?;
    let spelling = match arguments.format {
        Shape::Text => Spelling::Text,
        Shape::Json => Spelling::Json,
    };
    let out = BufWriter::with_capacity(1 << 16, stdout(spelling));
    let summary = match arguments.format {
        Shape::Text => dump(&recording, &arguments.kinds, text::Text::new(out)),
        Shape::Json => dump(&recording, &arguments.kinds, json::Json::new(out)),
    }?;
    tell_missing(&arguments.kinds, &summary)?;
    let mut notes = io::stderr().lock();
    if summary.damages > 0 {
        writeln!(
            notes,
            "# loss: damage in the profile: {} time(s); damaged records were skipped",
            summary.damages
        )?;
    }
    if summary.skipped > 0 {
        writeln!(
            notes,
            "# loss: {} records are of unknown types or could not be unpacked",
            summary.skipped
        )?;
    }
    if let Some(offset) = summary.stopped_at {
        bail!(
            "{}: damaged at byte {offset}, where reading stopped; what lies before is shown. Copy or record it again",
            arguments.input.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if none of the wanted types occurs in the recording, and names those that do.
fn tell_missing(kinds: &[String], summary: &ReadSummary) -> anyhow::Result<()> {
    let there: Vec<_> = summary
        .records
        .iter()
        .map(|(kind, _)| name_of(kind))
        .collect();
    let occurs = |wanted: &String| {
        wanted.eq_ignore_ascii_case(BURST)
            || there.iter().any(|kind| kind.eq_ignore_ascii_case(wanted))
    };
    if !kinds.is_empty() && !kinds.iter().any(occurs) {
        bail!(
            "--type {}: the recording has no such record; it has {}",
            kinds.join(","),
            there.join(", ")
        );
    }
    Ok(())
}

/// Writes all records of `kinds`, or of all types where there are none.
fn dump(recording: &Recording, kinds: &[String], mut sink: impl Sink) -> io::Result<ReadSummary> {
    let data = &recording.data;
    let fields = Fields::new(data);
    let mut result = Ok(());
    let mut bursts = Bursts::new(
        recording
            .windows
            .as_ref()
            .filter(|_| is_wanted(kinds, BURST)),
    );
    let summary = data.read(|record| {
        result = show(&record, kinds, &fields, &mut bursts, &mut sink);
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    result?;
    bursts.push_until(u64::MAX, &mut sink)?;
    sink.flush()?;
    Ok(summary)
}

/// Shows a record, and the bursts before it.
fn show(
    record: &FileRecord<'_>,
    kinds: &[String],
    fields: &Fields<'_>,
    bursts: &mut Bursts<'_>,
    sink: &mut impl Sink,
) -> io::Result<()> {
    if let Some(time) = record.time {
        bursts.push_until(time, sink)?;
    }
    let kind = kind_name(record);
    if !is_wanted(kinds, &kind) {
        return Ok(());
    }
    sink.begin((record.time, Some(record.offset)), &kind)?;
    fields.push(record, sink)?;
    sink.end()
}

/// Whether records of this type are shown.
fn is_wanted(kinds: &[String], kind: &str) -> bool {
    let mut wanted = kinds.iter();
    kinds.is_empty() || wanted.any(|wanted| wanted.eq_ignore_ascii_case(kind))
}

/// perf's name of the record's type, or its number.
fn kind_name(record: &FileRecord<'_>) -> Cow<'static, str> {
    name_of(record.raw.kind)
}

/// Returns perf's name of a type, or its number.
fn name_of(kind: RecordType) -> Cow<'static, str> {
    match dioptra_perfdata::record_name(kind) {
        Some(name) => name.into(),
        None => kind.0.to_string().into(),
    }
}
