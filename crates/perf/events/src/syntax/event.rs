//! One event's text.

use super::{Fault, modifiers};
use crate::names::pmu::{self, PmuDirectory};
use crate::names::{hardware, software, tracepoint};
use crate::spec::EventSpec;
use crate::{Attr, AttrFlags, event_type};
use std::io;

/// Reads the event in `text`, which starts at byte `at`; whether it was marked with `S`.
pub(super) fn parse(
    text: &str,
    at: usize,
    pmus: &PmuDirectory,
) -> Result<(EventSpec, bool), Fault> {
    let (mut spec, rest) = base(text, at, pmus)?;
    // A PMU's closing slash may stand in for the colon.
    let after_slash = rest > 0 && text.as_bytes().get(rest - 1) == Some(&b'/');
    let tail = &text[rest..];
    let letters = match tail.strip_prefix(':') {
        Some(letters) => Some((letters, rest + 1)),
        None if tail.is_empty() => None,
        None if after_slash => Some((tail, rest)),
        None => {
            return Err(Fault::new(
                at + rest,
                format!("`{tail}` after the event"),
                "separate events with commas",
            ));
        }
    };
    let mut sample = false;
    if let Some((letters, start)) = letters {
        sample = modifiers::apply(letters, at + start, &mut spec.attr)?;
    }
    spec.name = given_name(&text[..rest]).unwrap_or(text).to_owned();
    Ok((spec, sample))
}

/// Returns the name that a term `name=NAME` gives the event.
fn given_name(text: &str) -> Option<&str> {
    let (_, terms) = text.strip_suffix('/')?.split_once('/')?;
    terms
        .split(',')
        .filter_map(|term| term.trim().strip_prefix("name="))
        .map(str::trim)
        .next_back()
}

/// Reads the event without its modifiers; where they start.
fn base(text: &str, at: usize, pmus: &PmuDirectory) -> Result<(EventSpec, usize), Fault> {
    if let Some(rest) = text.strip_prefix("mem:") {
        return breakpoint(rest, at + 4).map(|(spec, end)| (spec, end + 4));
    }
    for (prefix, returns) in [("uprobe:", false), ("uretprobe:", true)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let start = prefix.len();
            return uprobe(rest, at + start, returns, pmus).map(|(spec, end)| (spec, end + start));
        }
    }
    let end = text.find(['/', ':']).unwrap_or(text.len());
    let name = &text[..end];
    if name.is_empty() {
        return Err(Fault::new(
            at,
            "an event is missing",
            "name one, such as cpu-clock",
        ));
    }
    if text[end..].starts_with('/') {
        let close = text[end + 1..].find('/').map(|close| end + 1 + close);
        let Some(close) = close else {
            return Err(Fault::new(
                at + end,
                "the slash is not closed",
                "write pmu/term=1,term=2/",
            ));
        };
        let spec = with_terms(name, &text[end + 1..close], at, at + end + 1, pmus)?;
        return Ok((spec, close + 1));
    }
    if let Some(spec) = named(name, pmus) {
        return Ok((spec, end));
    }
    if let Some(after) = text[end..].strip_prefix(':') {
        let length = after.find(':').unwrap_or(after.len());
        let spec = tracepoint_event(name, &after[..length], at)?;
        return Ok((spec, end + 1 + length));
    }
    Err(unknown(name, at))
}

/// Parses an event given by its bare name.
fn named(name: &str, pmus: &PmuDirectory) -> Option<EventSpec> {
    let attr = |kind, config| Attr {
        kind,
        config,
        ..Attr::default()
    };
    if let Some(config) = hardware::config(name) {
        return Some(EventSpec::new(name, attr(event_type::HARDWARE, config)));
    }
    if let Some(config) = software::config(name) {
        return Some(EventSpec::new(name, attr(event_type::SOFTWARE, config)));
    }
    if let Some(config) = hardware::cache_config(name) {
        return Some(EventSpec::new(name, attr(event_type::HW_CACHE, config)));
    }
    if let Some(digits) = name.strip_prefix('r')
        && !digits.is_empty()
        && digits.len() <= 16
        && let Ok(config) = u64::from_str_radix(digits, 16)
    {
        return Some(EventSpec::new(name, attr(event_type::RAW, config)));
    }
    let pmu = pmus.pmu_with_event(name)?;
    let mut attr = attr(pmus.kind(&pmu)?, 0);
    pmus.set_term(&mut attr, &pmu, name, None).ok()?;
    Some(EventSpec::new(name, attr))
}

fn unknown(name: &str, at: usize) -> Fault {
    let known = hardware::EVENTS
        .iter()
        .flat_map(|event| event.names)
        .chain(software::EVENTS.iter().flat_map(|event| event.names));
    let nearest = known
        .map(|candidate| (distance(name, candidate), *candidate))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    let what = format!("there is no event `{name}`");
    match nearest {
        Some((_, candidate)) => Fault::new(at, what, format!("did you mean {candidate}?")),
        None => Fault::unknown(at, what),
    }
}

/// Returns the number of letters to insert, leave out or replace to get from one word to the other.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Parses an event with terms between slashes: a PMU's, or a named one with a period and the like.
fn with_terms(
    name: &str,
    terms: &str,
    at: usize,
    terms_at: usize,
    pmus: &PmuDirectory,
) -> Result<EventSpec, Fault> {
    let pmu = pmus.kind(name);
    let mut spec = match pmu {
        Some(kind) => EventSpec::new(
            name,
            Attr {
                kind,
                ..Attr::default()
            },
        ),
        None => named(name, pmus).ok_or_else(|| {
            let have = pmus.names().join(", ");
            Fault::new(
                at,
                format!("there is no PMU or event `{name}`"),
                format!("this machine's PMUs are: {have}"),
            )
        })?,
    };
    let mut start = terms_at;
    for term in terms.split(',') {
        let place = start;
        start += term.len() + 1;
        if term.is_empty() {
            continue;
        }
        let (key, text) = match term.split_once('=') {
            Some((key, text)) => (key.trim(), Some(text.trim())),
            None => (term.trim(), None),
        };
        set_term(&mut spec, pmu.map(|_| name), key, text, place, pmus)?;
    }
    Ok(spec)
}

fn set_term(
    spec: &mut EventSpec,
    pmu: Option<&str>,
    key: &str,
    text: Option<&str>,
    at: usize,
    pmus: &PmuDirectory,
) -> Result<(), Fault> {
    let value_at = at + key.len() + 1;
    let number = |text: &str| {
        pmu::number(text).ok_or_else(|| {
            Fault::new(
                value_at,
                format!("`{text}` is no number"),
                "write 12 or 0xc",
            )
        })
    };
    let needed = || {
        let text = text.ok_or_else(|| {
            Fault::new(
                at,
                format!("`{key}` needs a value"),
                format!("write {key}=1"),
            )
        })?;
        number(text)
    };
    match key {
        "period" | "freq" => {
            let value = needed()?;
            if value == 0 {
                return Err(Fault::new(
                    value_at,
                    format!("a {key} of zero"),
                    "write a positive number",
                ));
            }
            spec.attr.sample_period = value;
            spec.attr.flags.set(AttrFlags::FREQ, key == "freq");
            spec.explicit_period = true;
        }
        "max-stack" => {
            let value = needed()?;
            spec.attr.sample_max_stack = u16::try_from(value)
                .map_err(|_| Fault::new(value_at, "too many frames", "at most 65535"))?;
        }
        "name" => {
            // The name replaces the text as typed when the event is complete.
            if text.is_none_or(str::is_empty) {
                return Err(Fault::new(at, "`name` needs a value", "write name=NAME"));
            }
        }
        "config" if pmu.is_some() => spec.attr.config = needed()?,
        "config1" if pmu.is_some() => spec.attr.config1 = needed()?,
        "config2" if pmu.is_some() => spec.attr.config2 = needed()?,
        "config3" if pmu.is_some() => spec.attr.config3 = needed()?,
        _ => {
            let Some(pmu) = pmu else {
                return Err(Fault::new(
                    at,
                    format!("`{key}` is no term of a named event"),
                    "terms are period, freq, max-stack and name",
                ));
            };
            let value = text.map(number).transpose()?;
            pmus.set_term(&mut spec.attr, pmu, key, value)
                .map_err(|error| Fault::unknown(at, error.to_string()))?;
        }
    }
    Ok(())
}

fn tracepoint_event(system: &str, name: &str, at: usize) -> Result<EventSpec, Fault> {
    let config = tracepoint::config(system, name).map_err(|error| {
        let what = format!("there is no event `{system}:{name}`");
        match (error.kind(), tracepoint::directory()) {
            (io::ErrorKind::PermissionDenied, _) => Fault::new(
                at,
                format!("the tracepoint `{system}:{name}` cannot be looked up: only root may read tracefs"),
                "run as root, or as root: mount -o remount,mode=755 /sys/kernel/tracing",
            )
            .denied(),
            (_, Err(_)) => Fault::new(
                at,
                format!("{what}, or tracefs is not mounted"),
                "as root: mount -t tracefs tracefs /sys/kernel/tracing",
            ),
            _ => Fault::unknown(at, what),
        }
    })?;
    let attr = Attr {
        kind: event_type::TRACEPOINT,
        config,
        ..Attr::default()
    };
    Ok(EventSpec::new(format!("{system}:{name}"), attr))
}

/// Parses `ADDRESS[/LENGTH][:rwx]`.
fn breakpoint(text: &str, at: usize) -> Result<(EventSpec, usize), Fault> {
    let mut end = text.find(['/', ':']).unwrap_or(text.len());
    let address = pmu::number(&text[..end]).ok_or_else(|| {
        Fault::new(
            at,
            format!("`{}` is no address", &text[..end]),
            "write mem:0x1234",
        )
    })?;
    let mut length = None;
    if let Some(rest) = text[end..].strip_prefix('/') {
        let digits = rest.find(':').unwrap_or(rest.len());
        let value = pmu::number(&rest[..digits]).filter(|length| matches!(length, 1 | 2 | 4 | 8));
        length = Some(value.ok_or_else(|| {
            Fault::new(
                at + end + 1,
                format!("`{}` is no length", &rest[..digits]),
                "write 1, 2, 4 or 8 bytes",
            )
        })?);
        end += 1 + digits;
    }
    // Reads and writes; a first group of letters names others.
    let mut access = 0;
    if let Some(rest) = text[end..].strip_prefix(':') {
        let letters = &rest[..rest.find(':').unwrap_or(rest.len())];
        let bit = |letter| match letter {
            'r' => Some(1),
            'w' => Some(2),
            'x' => Some(4),
            _ => None,
        };
        let bits: Option<Vec<u32>> = letters.chars().map(bit).collect();
        if let Some(bits) = bits.filter(|bits| !bits.is_empty()) {
            access = bits.into_iter().fold(0, |all, bit| all | bit);
            end += 1 + letters.len();
        }
    }
    if access == 0 {
        access = 3;
    }
    let executes = access == 4;
    // The kernel watches instructions in units of a word.
    let default = if executes {
        size_of::<usize>() as u64
    } else {
        4
    };
    let attr = Attr {
        kind: event_type::BREAKPOINT,
        bp_type: access,
        config1: address,
        config2: length.unwrap_or(default),
        ..Attr::default()
    };
    Ok((EventSpec::new("mem", attr), end))
}

/// Parses `FILE+OFFSET`.
fn uprobe(
    text: &str,
    at: usize,
    returns: bool,
    pmus: &PmuDirectory,
) -> Result<(EventSpec, usize), Fault> {
    let Some(plus) = text.rfind('+') else {
        return Err(Fault::new(
            at,
            "the offset is missing",
            "write uprobe:/path/of/file+0x1234",
        ));
    };
    let (path, rest) = (&text[..plus], &text[plus + 1..]);
    let digits = rest.find(':').unwrap_or(rest.len());
    let offset = pmu::number(&rest[..digits]).ok_or_else(|| {
        Fault::new(
            at + plus + 1,
            format!("`{}` is no offset", &rest[..digits]),
            "write a number of bytes, such as 0x1234",
        )
    })?;
    let path = std::ffi::CString::new(path)
        .map_err(|_| Fault::new(at, "the file's name holds a NUL", "name another file"))?;
    let kind = pmus.kind("uprobe").ok_or_else(|| {
        Fault::new(
            at,
            "this kernel has no uprobes",
            "a kernel with CONFIG_UPROBE_EVENTS is needed",
        )
    })?;
    let mut attr = Attr {
        kind,
        config2: offset,
        ..Attr::default()
    };
    if returns {
        pmus.set_term(&mut attr, "uprobe", "retprobe", Some(1))
            .map_err(|error| Fault::unknown(at, error.to_string()))?;
    }
    let mut spec = EventSpec::new("uprobe", attr);
    spec.probed_file = Some(path.into());
    Ok((spec, plus + 1 + digits))
}
