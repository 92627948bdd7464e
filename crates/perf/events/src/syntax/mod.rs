//! The text form of events, as users of `perf` type it.
//!
//! ```text
//! events    = item { "," item }
//! item      = event | "{" event { "," event } "}" [ ":" modifiers ]
//! event     = name [ "/" terms "/" ] [ ":" modifiers ]     cycles:u   L1-dcache-load-misses   cpu-clock/freq=99/
//!           | pmu "/" terms "/" [ modifiers ]               msr/tsc/   cpu/event=0x3c,umask=1/u
//!           | system ":" name [ ":" modifiers ]             sched:sched_switch
//!           | "r" hex [ ":" modifiers ]                     r1a8
//!           | "mem:" address [ "/" length ] [ ":" rwx ] [ ":" modifiers ]
//!           | ("uprobe:" | "uretprobe:") file "+" offset [ ":" modifiers ]
//! modifiers = any of u k h p P S D G H I e W
//! ```

mod event;
mod modifiers;

use crate::names::pmu::PmuDirectory;
use crate::spec::EventGroup;
use thiserror::Error;

/// Text that is no event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("column {column} of `{text}`: {what}{}{remedy}", if remedy.is_empty() { "" } else { "; " })]
#[non_exhaustive]
pub struct EventSyntaxError {
    /// Where the fault is: the first character is column 1.
    pub column: usize,
    /// The whole text.
    pub text: String,
    /// The fault, in words.
    pub what: String,
    /// The remedy; empty where there is none.
    pub remedy: String,
    /// The cause.
    pub cause: SyntaxCause,
}

/// A fault at a byte of the text.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) what: String,
    pub(crate) remedy: String,
    pub(crate) cause: SyntaxCause,
}

/// The cause of an [`EventSyntaxError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntaxCause {
    /// The text does not follow the grammar.
    Grammar,
    /// This machine has no event or term of this name. [`list_events`](crate::list_events) lists the events.
    Unknown,
    /// The text may be right, but this user may not look the event up.
    Denied,
}

impl Fault {
    pub(crate) fn new(at: usize, what: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault {
            at,
            what: what.into(),
            remedy: remedy.into(),
            cause: SyntaxCause::Grammar,
        }
    }

    /// Makes the fault of a name that this machine does not know.
    pub(crate) fn unknown(at: usize, what: impl Into<String>) -> Fault {
        Fault {
            cause: SyntaxCause::Unknown,
            ..Fault::new(at, what, "")
        }
    }

    /// Returns the same for want of a permission.
    pub(crate) fn denied(self) -> Fault {
        Fault {
            cause: SyntaxCause::Denied,
            ..self
        }
    }
}

/// Reads a list of events. An event outside of braces is a group of its own.
///
/// # Errors
/// [`EventSyntaxError`], which points at the column. Whether the machine can count an event is found out by opening it.
pub fn parse_events(text: &str) -> Result<Vec<EventGroup>, EventSyntaxError> {
    parse_events_with(text, &PmuDirectory::default())
}

/// As [`parse_events`], with the PMUs of another machine.
///
/// # Errors
/// As [`parse_events`].
pub fn parse_events_with(
    text: &str,
    pmus: &PmuDirectory,
) -> Result<Vec<EventGroup>, EventSyntaxError> {
    groups(text, pmus).map_err(|fault| EventSyntaxError {
        column: text
            .get(..fault.at)
            .map_or(0, |before| before.chars().count())
            + 1,
        text: text.to_owned(),
        what: fault.what,
        remedy: fault.remedy,
        cause: fault.cause,
    })
}

fn groups(text: &str, pmus: &PmuDirectory) -> Result<Vec<EventGroup>, Fault> {
    let mut groups = Vec::new();
    for (at, item) in split(text, 0)? {
        let start = at + (item.len() - item.trim_start().len());
        let item = item.trim();
        if item.is_empty() {
            return Err(Fault::new(
                start,
                "an event is missing",
                "name one, such as cpu-clock",
            ));
        }
        let Some(inner) = item.strip_prefix('{') else {
            let (event, sample_group) = event::parse(item, start, pmus)?;
            let mut group = EventGroup::from(event);
            group.sample_group = sample_group;
            groups.push(group);
            continue;
        };
        let Some(end) = inner.rfind('}') else {
            return Err(Fault::new(start, "the brace is not closed", "write {a,b}"));
        };
        let mut group = EventGroup::default();
        for (at, member) in split(&inner[..end], start + 1)? {
            let at = at + (member.len() - member.trim_start().len());
            let (event, sample_group) = event::parse(member.trim(), at, pmus)?;
            group.sample_group |= sample_group;
            group.events.push(event);
        }
        let after = &inner[end + 1..];
        let at = start + 1 + end + 1;
        match after.strip_prefix(':') {
            Some(modifiers) => {
                for event in &mut group.events {
                    group.sample_group |= modifiers::apply(modifiers, at + 1, &mut event.attr)?;
                    event.name = format!("{}:{modifiers}", event.name);
                }
            }
            None if after.is_empty() => {}
            None => {
                return Err(Fault::new(
                    at,
                    format!("`{after}` after the group"),
                    "only modifiers may follow, such as {a,b}:u",
                ));
            }
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Splits at commas outside of braces and of slashes, with the byte at which each part starts.
fn split(text: &str, offset: usize) -> Result<Vec<(usize, &str)>, Fault> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut slashes) = (0, 0_u32, false);
    let mut path = false;
    for (at, c) in text.char_indices() {
        if at == start + text[start..].len() - text[start..].trim_start().len() {
            let rest = &text[at..];
            // Slashes of addresses and of file names don't enclose terms.
            path = ["uprobe:", "uretprobe:", "mem:"]
                .iter()
                .any(|form| rest.starts_with(form));
        }
        match c {
            '/' if !path => slashes = !slashes,
            '{' if !slashes => {
                depth += 1;
                if depth > 1 {
                    return Err(Fault::new(
                        offset + at,
                        "a group in a group",
                        "groups do not nest",
                    ));
                }
            }
            '}' if !slashes => {
                depth = depth.checked_sub(1).ok_or_else(|| {
                    Fault::new(offset + at, "a brace that was not opened", "write {a,b}")
                })?;
            }
            ',' if depth == 0 && !slashes => {
                parts.push((offset + start, &text[start..at]));
                start = at + 1;
                path = false;
            }
            _ => {}
        }
    }
    parts.push((offset + start, &text[start..]));
    Ok(parts)
}
