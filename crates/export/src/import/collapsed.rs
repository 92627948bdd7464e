//! Collapsed stacks: a line for each stack, `thread;outermost;…;innermost VALUE`.

use super::error::ImportError;
use super::names::Location;
use super::omitted::{Omissions, OmittedKind};
use super::recording::{Event, Fields, NO_MODULE, Recording, Samples, is_time};
use super::records::Task;
use super::{ImportFormat, ImportOptions, ImportedEvent};
use dioptra_perfdata::{ImportedFrame, ImportedRole};
use dioptra_profile::UNKNOWN;
use hashbrown::HashMap;
use std::io::{Seek, Write};

/// Returns whether a line is a collapsed stack.
pub(super) fn looks_right(line: &str) -> bool {
    parse(line).is_ok()
}

/// Splits a line at the blank before its value.
fn parse(line: &str) -> Result<(&str, u64), String> {
    let line = line.trim_end();
    let (stack, value) = line
        .rsplit_once([' ', '\t'])
        .ok_or("there is no value behind the stack")?;
    let stack = stack.trim_end();
    if stack.is_empty() {
        return Err("there is no stack before the value".to_owned());
    }
    match value.parse() {
        Ok(value) => Ok((stack, value)),
        Err(_) => Err(format!(
            "the value {:?} is no whole number of 64 bits",
            shortened(value)
        )),
    }
}

/// Returns the beginning of a text for a message.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(40).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Writes collapsed stacks as a recording. Each line becomes one sample.
pub(super) fn import<W: Write + Seek>(
    content: &[u8],
    options: ImportOptions,
    omissions: &mut Omissions,
    out: W,
) -> Result<Vec<ImportedEvent>, ImportError> {
    let name = match options.event.is_empty() {
        true => "value".to_owned(),
        false => options.event.clone(),
    };
    let event = Event {
        is_time: is_time(&name),
        has_weights: true,
        period: None,
        name: name.clone(),
    };
    let mut recording = Recording::begin(&[event], Fields::default(), omissions, out)?;
    let module = recording.names.add_module(NO_MODULE, None, None, false);
    let mut locations: HashMap<&str, Location> = HashMap::new();
    let mut threads: HashMap<&str, u32> = HashMap::new();
    let mut stack: Vec<Location> = Vec::new();
    let mut values = 0;
    for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let line = std::str::from_utf8(line).map_err(|error| {
            let byte = error.valid_up_to() + 1;
            ImportError::line(number, format!("byte {byte} is not UTF-8"))
        })?;
        let (path, value) = parse(line).map_err(|why| ImportError::line(number, why))?;
        if value == 0 {
            continue;
        }
        let (comm, functions) = match options.first_is_function {
            true => (options.thread_name.as_str(), path),
            false => path.split_once(';').unwrap_or((path, "")),
        };
        let next = u32::try_from(threads.len() + 1).unwrap_or(u32::MAX);
        let pid = *threads.entry(comm).or_insert(next);
        stack.clear();
        let functions = functions.rsplit(';').filter(|name| !name.is_empty());
        for function in functions {
            let location = *locations.entry(function).or_insert_with(|| {
                if function == UNKNOWN {
                    return Location::nowhere(0);
                }
                let location = recording.names.make_up(module);
                let frame = ImportedFrame {
                    function: recording.names.function(function, function),
                    file: None,
                    line: None,
                };
                recording
                    .names
                    .name(location, ImportedRole::Executes, &[frame]);
                location
            });
            stack.push(location);
        }
        if stack.is_empty() {
            // A thread without functions: its place is unknown.
            stack.push(Location::nowhere(0));
        }
        let task = Task {
            pid,
            tid: pid,
            ..Task::default()
        };
        let samples = Samples {
            event: 0,
            task,
            comm,
            count: 1,
            weight: value,
        };
        recording.add(samples, &stack)?;
        values += 1;
    }
    recording
        .omissions
        .add_many(OmittedKind::SampleNumbers(name), values);
    recording.finish(ImportFormat::Collapsed.name(), options.features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_behind_the_last_blank() {
        assert_eq!(
            parse("a b;operator new(int) 12\r"),
            Ok(("a b;operator new(int)", 12))
        );
        assert_eq!(parse("a;b\t3"), Ok(("a;b", 3)));
        for wrong in [
            "a;b",
            "12",
            " 12",
            "a 1.5",
            "a -1",
            "a 18446744073709551616",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
