//! The report with a row for each thread.

use super::super::fields;
use super::{Arguments, Output, facts, push_duration, push_number, title, usage};
use crate::exit::Exit;
use crate::screen::{Spelling, stdout};
use dioptra_calls::statistics;
use dioptra_tables::{Format, escape};
use dioptra_trace_report::{thread_table, threads};
use std::cmp::Reverse;
use std::io;

const FIELDS: [&str; 4] = ["total", "self", "tid", "func"];

pub fn run(arguments: &Arguments, format: Format, as_page: bool) -> anyhow::Result<Exit> {
    let fields = fields::parse(
        arguments.output_fields.as_deref(),
        &FIELDS,
        FIELDS.map(|name| (name, name)),
    )?;
    let key = arguments.sort.as_deref().unwrap_or("total");
    if !FIELDS.contains(&key) && key != "name" {
        let text = format!(
            "-s: threads are sorted by {} or name, not by `{key}`",
            FIELDS.join(", ")
        );
        return Err(usage(text));
    }
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view(&names)?;
    let sums = statistics(&view);
    let mut rows = threads(&view, &sums);
    match key {
        "tid" => rows.sort_by_key(|row| row.tid),
        "func" => rows.sort_by_key(|row| Reverse(row.calls)),
        "name" => rows.sort_by(|a, b| a.name.cmp(b.name)),
        "self" => rows.sort_by_key(|row| Reverse(row.self_time)),
        _ => rows.sort_by_key(|row| Reverse(row.total)),
    }
    let facts = facts(&trace, &names, &sums.losses);
    if format != Format::Text {
        let mut table = thread_table(&rows)?;
        table.facts = facts;
        format.write(&mut table, None, stdout(Spelling::Text))?;
        if !format.shows_facts() {
            table.facts.write_text(&mut io::stderr().lock())?;
        }
        return Ok(Exit::Done);
    }
    let mut page = Output::page(&title(&trace), as_page)?;
    let out = &mut page.text;
    let headings = fields.iter().map(|field| match *field {
        "total" => "  Total time",
        "self" => "   Self time",
        "tid" => "     TID",
        _ => "   Num funcs",
    });
    let headings: Vec<&str> = headings.collect();
    // Scripts ask for names alone, so there is no heading then.
    if !fields.is_empty() {
        for heading in &headings {
            out.extend_from_slice(heading.as_bytes());
        }
        out.extend_from_slice(b"  Task name\n");
        for heading in &headings {
            out.extend_from_slice(format!("  {}", "=".repeat(heading.len() - 2)).as_bytes());
        }
        out.extend_from_slice(b"  ====================\n");
    }
    for row in &rows {
        for field in &fields {
            out.extend_from_slice(b"  ");
            match *field {
                "total" => push_duration(out, row.total),
                // The trace does not know the time outside of shown calls. Thus self time is all time of shown calls
                // with a CPU.
                "self" => push_duration(out, row.self_time),
                "tid" => push_number(out, u64::from(row.tid), 6),
                _ => push_number(out, row.calls, 10),
            }
        }
        out.extend_from_slice(format!("  {}\n", escape(row.name)).as_bytes());
    }
    page.finish()?;
    facts.write_text(&mut io::stderr().lock())?;
    Ok(Exit::Done)
}
