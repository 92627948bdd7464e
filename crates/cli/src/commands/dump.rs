//! `dioptra dump`: every record in full, in time order.

mod bursts;
mod fields;
mod json;
mod registers;
mod text;

use super::profiles::Recording;
use crate::exit::Exit;
use crate::formats::TextOrJson;
use crate::screen::stdout;
use anyhow::bail;
use bursts::{BURST, Bursts};
use dioptra_perfdata::{FileRecord, ReadSummary};
use dioptra_perfevents::record::RecordType;
use fields::Fields;
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

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
    /// Output format: a line for each record, with the parts of long ones below it; or an object for each record, one a line
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    /// Show records of this type only, such as SAMPLE or MMAP2; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    kinds: Vec<String>,
}

/// A record's time, and its offset in the file; bursts of windows lie in a section and have none.
type RecordPosition = (Option<u64>, Option<u64>);

/// The receiver of records, one after the other, each as fields.
trait Sink {
    /// Starts a record.
    fn begin(&mut self, place: RecordPosition, kind: &str) -> io::Result<()>;
    /// Adds a field to the record.
    fn field(&mut self, name: &'static str, value: Value<'_>) -> io::Result<()>;
    /// Ends the record.
    fn end(&mut self) -> io::Result<()>;
    /// Writes buffered output.
    fn flush(&mut self) -> io::Result<()>;
}

/// A field's value.
enum Value<'a> {
    Number(u64),
    /// The number of a process or thread; -1 stands for none.
    Task(u32),
    Address(u64),
    Flag(bool),
    Word(&'a str),
    /// Text of any encoding.
    Text(&'a [u8]),
    /// Opaque bytes.
    Bytes(&'a [u8]),
    /// The addresses of a call chain, with the context marks among them.
    Chain(&'a [Link]),
    /// Registers with their names.
    Registers(&'a [(String, u64)]),
    /// Equal items, each with fields of its own.
    List(&'a [Vec<(&'static str, Value<'a>)>]),
}

/// An entry of a call chain.
enum Link {
    Address(u64),
    /// A context mark: the kind of the addresses after it, such as kernel or user.
    Mark(String),
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let recording = super::profiles::open(&arguments.input)?;
    let out = BufWriter::with_capacity(1 << 16, stdout(arguments.format.spelling()));
    let summary = match arguments.format {
        TextOrJson::Text => dump(&recording, &arguments.kinds, text::Text::new(out)),
        TextOrJson::Json => dump(&recording, &arguments.kinds, json::Json::new(out)),
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
    Ok(Exit::Done)
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

/// Writes all records of the types `kinds`, or of all types if `kinds` is empty.
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

/// Writes a record, and before it the bursts that were armed until its time.
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

/// Returns whether records of this type are shown.
fn is_wanted(kinds: &[String], kind: &str) -> bool {
    let mut wanted = kinds.iter();
    kinds.is_empty() || wanted.any(|wanted| wanted.eq_ignore_ascii_case(kind))
}

/// Returns perf's name of the record's type, or its number.
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
