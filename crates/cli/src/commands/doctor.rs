//! `dioptra doctor`: what works on this machine, what does not, what that costs, and how to mend it.

mod check;
mod machine;
mod sampling;

use crate::exit::Exit;
use crate::formats::TextOrJson;
use crate::screen::stdout;
use check::{Check, Status};
use dioptra_tables::escape;
use serde::Serialize;
use std::io::{self, Write};

/// Arguments of `dioptra doctor`.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 if sampling works, if only in part; 1 if it does not.

Examples:
  dioptra doctor                             what works here, and what mends the rest
  dioptra doctor --format json | jq .usable  for programs")]
pub struct Arguments {
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let sampling = sampling::Sampling::probe();
    let usable = sampling.works();
    let mut checks = vec![machine::kernel()];
    checks.extend(sampling.checks());
    checks.extend(machine::checks(&sampling));
    let out = stdout(arguments.format.spelling());
    match arguments.format {
        TextOrJson::Text => write_text(&checks, usable, out)?,
        TextOrJson::Json => write_json(&checks, usable, out)?,
    }
    Ok(if usable { Exit::Done } else { Exit::Failed })
}

fn write_text(checks: &[Check], usable: bool, mut out: impl Write) -> io::Result<()> {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let indent = " ".repeat("limited  ".len() + width + 2);
    for check in checks {
        writeln!(
            out,
            "{:<7}  {:<width$}  {}",
            check.status.word(),
            check.name,
            escape(&check.found)
        )?;
        if let Some(cost) = &check.cost {
            writeln!(out, "{indent}costs: {}", escape(cost))?;
        }
        if let Some(remedy) = &check.remedy {
            writeln!(out, "{indent}to mend it: {}", escape(remedy))?;
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (limited, missing) = (count(Status::Limited), count(Status::Missing));
    writeln!(out)?;
    if usable {
        writeln!(
            out,
            "Sampling works here; {limited} limited, {missing} missing."
        )
    } else {
        writeln!(
            out,
            "Sampling does not work here; {limited} limited, {missing} missing."
        )
    }
}

/// The findings as a JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    usable: bool,
    checks: &'a [Check],
}

fn write_json(checks: &[Check], usable: bool, mut out: impl Write) -> io::Result<()> {
    let document = Document {
        schema: 1,
        usable,
        checks,
    };
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)
}
