//! `dioptra info` for people.

use super::{Event, Info, Windows};
use dioptra_tables::escape;
use std::io::{self, Write};

pub fn print(out: &mut impl Write, info: &Info, with_mappings: bool) -> io::Result<()> {
    print_file(out, info)?;
    print_machine(out, info)?;
    if !info.command_line.is_empty() {
        field(out, "command line", &shown_command(&info.command_line))?;
    }
    if let Some(format) = &info.imported {
        field(out, "imported", &format!("from {format}"))?;
    }
    if let Some(time) = &info.time {
        let (first, last) = (seconds(time.first), seconds(time.last));
        let length = seconds(time.last - time.first);
        field(
            out,
            "samples from",
            &format!("{first} s to {last} s, {length} s"),
        )?;
    }
    for event in &info.events {
        print_event(out, event)?;
    }
    if let Some(windows) = &info.windows {
        print_windows(out, windows)?;
    }
    let sections: Vec<_> = info.features.keys().map(String::as_str).collect();
    let sections = if sections.is_empty() {
        "none".into()
    } else {
        sections.join(" ")
    };
    field(out, "features", &sections)?;
    field(out, "build ids", &info.build_ids.len().to_string())?;
    let mapped: u64 = info.mappings.iter().map(|mapping| mapping.mappings).sum();
    field(
        out,
        "mappings",
        &format!("{mapped} of {} modules", info.mappings.len()),
    )?;
    if with_mappings {
        for mapping in &info.mappings {
            writeln!(
                out,
                "{:>10}  {}",
                mapping.mappings,
                printable(&mapping.path)
            )?;
        }
    }
    print_records(out, info)
}

fn print_file(out: &mut impl Write, info: &Info) -> io::Result<()> {
    let file = &info.file;
    let compression = file.compression.as_ref().map_or_else(String::new, |how| {
        // A pipe's header is written before the ratio is known.
        let ratio = match how.ratio {
            0 | 1 => String::new(),
            ratio => format!(", {ratio} times smaller"),
        };
        format!(", {} level {}{ratio}", how.kind, how.level)
    });
    field(
        out,
        "file",
        &format!(
            "{} ({}, {} bytes, {} endian{compression})",
            file.path, file.format, file.size, file.byte_order
        ),
    )
}

fn print_machine(out: &mut impl Write, info: &Info) -> io::Result<()> {
    let machine = &info.machine;
    let cpus = machine
        .cpus_online
        .map(|online| match machine.cpus_available {
            Some(all) => format!("{online} online of {all}"),
            None => online.to_string(),
        });
    let memory = machine
        .total_memory_kib
        .map(|kib| format!("{} MiB", kib / 1024));
    for (name, value) in [
        ("machine", &machine.hostname),
        ("kernel", &machine.os_release),
        ("architecture", &machine.arch),
        ("CPU", &machine.cpu_description),
        ("CPU id", &machine.cpuid),
        ("CPUs", &cpus),
        ("memory", &memory),
        ("recorder", &machine.recorder_version),
    ] {
        if let Some(value) = value {
            field(out, name, value)?;
        }
    }
    Ok(())
}

fn print_windows(out: &mut impl Write, windows: &Windows) -> io::Result<()> {
    let schedule = windows.schedule.as_deref().unwrap_or("not recorded");
    field(
        out,
        "windows",
        &format!(
            "source {}, schedule {schedule}, warm-up {}",
            windows.source, windows.warm_up
        ),
    )?;
    let detail = |out: &mut dyn Write, text: &str| writeln!(out, "{:14}  {}", "", printable(text));
    for finding in &windows.findings {
        detail(out, finding)?;
    }
    if let Some(why) = &windows.instead {
        detail(out, &format!("fallback: {why}"))?;
    }
    for group in &windows.groups {
        let last = if group.drop_last {
            ", without the last window"
        } else {
            ""
        };
        detail(
            out,
            &format!(
                "group {{{}}}: {} bursts{last}",
                group.events.join(","),
                group.bursts
            ),
        )?;
    }
    let outcomes: Vec<String> = windows
        .outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    detail(
        out,
        &format!(
            "{} bursts ({}), {} of {} windows",
            windows.bursts,
            outcomes.join(", "),
            windows.windows_seen,
            windows.windows_expected
        ),
    )?;
    for total in &windows.totals {
        let partly = if total.running < total.enabled {
            format!(
                ", counted {:.1}% of the time",
                100.0 * total.running as f64 / total.enabled as f64
            )
        } else {
            String::new()
        };
        detail(
            out,
            &format!("total of {}: {}{partly}", total.event, total.value),
        )?;
    }
    for loss in &windows.losses {
        detail(out, &format!("loss: {}: {}", loss.what, loss.count))?;
    }
    Ok(())
}

fn print_event(out: &mut impl Write, event: &Event) -> io::Result<()> {
    let rate = match (event.frequency, event.period) {
        (Some(hertz), _) => format!("{hertz} Hz"),
        (None, Some(0)) => "takes no samples".into(),
        (None, None) => "at an unknown rate".into(),
        (None, Some(period)) => format!("every {period}"),
    };
    let samples = match &event.counted_with {
        Some(leader) => format!("{}: counted with its leader, {leader}", event.name),
        None => format!("{}: {} samples, {rate}", event.name, event.samples),
    };
    field(out, "event", &samples)?;
    let detail = |out: &mut dyn Write, name: &str, words: &[&str]| match words {
        [] => Ok(()),
        words => writeln!(out, "{:14}  {name}: {}", "", words.join(" ")),
    };
    writeln!(
        out,
        "{:14}  type {} config {:#x} precise {} ids {}",
        "",
        event.kind,
        event.config,
        event.precise_ip,
        event.ids.len()
    )?;
    detail(out, "fields", &event.sample_fields)?;
    detail(out, "read format", &event.read_format)?;
    detail(out, "flags", &event.flags)
}

fn print_records(out: &mut impl Write, info: &Info) -> io::Result<()> {
    let total: u64 = info.records.values().sum();
    field(out, "records", &total.to_string())?;
    for (name, count) in &info.records {
        writeln!(out, "{count:>14}  {name}")?;
    }
    // Zeros are shown too: the reader looks here to see that nothing was lost.
    field(out, "lost records", &info.lost.to_string())?;
    field(out, "lost samples", &info.lost_samples.to_string())?;
    field(out, "throttled", &info.throttled.to_string())?;
    for unsampled in &info.unsampled {
        field(out, "unsampled", &unsampled.text)?;
    }
    for (name, count) in [
        ("unknown ids", info.unknown_ids),
        ("skipped", info.skipped),
        ("out of order", info.out_of_order),
    ] {
        if count > 0 {
            field(out, name, &count.to_string())?;
        }
    }
    if info.salvaged {
        let stopped = info.stopped_at.map_or_else(String::new, |offset| {
            format!("; reading stopped at offset {offset}")
        });
        let what = "the file is not whole, this is what could be read";
        field(out, "salvaged", &format!("{what}{stopped}"))?;
    }
    for damage in &info.damaged {
        field(
            out,
            "damaged",
            &format!("at offset {}: {}", damage.offset, damage.why),
        )?;
    }
    let more = info.damages.saturating_sub(info.damaged.len() as u64);
    if more > 0 {
        field(out, "damaged", &format!("and {more} more"))?;
    }
    Ok(())
}

fn field(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{name:<14}  {}", printable(value))
}

/// Spells out control characters, so that names from files can't steer the terminal.
fn printable(text: &str) -> String {
    escape(text)
}

fn seconds(nanoseconds: u64) -> String {
    format!(
        "{}.{:06}",
        nanoseconds / 1_000_000_000,
        nanoseconds % 1_000_000_000 / 1000
    )
}

/// Joins the words, quoted where a shell would split them. Cuts a long line after its beginning.
fn shown_command(words: &[String]) -> String {
    /// Some lines of a terminal: a linker is called with thousands of words.
    const LETTERS: usize = 500;
    let whole = quoted(words);
    match whole.char_indices().nth(LETTERS) {
        None => whole,
        Some((end, _)) => format!(
            "{}… ({} words; --format json has them all)",
            &whole[..end],
            words.len()
        ),
    }
}

fn quoted(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let plain = |letter: char| letter.is_alphanumeric() || "-_./,:=+@%{}".contains(letter);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
