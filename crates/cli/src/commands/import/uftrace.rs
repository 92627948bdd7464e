//! `dioptra import DIR`: a directory that uftrace has recorded, as a trace.

use crate::exit::Exit;
use crate::output::say;
use anyhow::bail;
use dioptra_export::{UftraceImported, read_uftrace};
use dioptra_trace_report::number_of;
use std::path::Path;

/// Makes the trace `output` of the directory `input`.
pub fn run(input: &Path, output: &Path) -> anyhow::Result<Exit> {
    if output == Path::new("-") {
        bail!("-o -: a trace is a directory, which standard output is not");
    }
    let importer = concat!("dioptra ", env!("CARGO_PKG_VERSION"));
    let imported = read_uftrace(input, output, importer)?;
    let UftraceImported {
        calls,
        threads,
        omitted,
    } = imported;
    say!(
        "wrote {} from uftrace: {}, {}; see it with `dioptra trace report -d {}`",
        output.display(),
        number_of(calls, "call"),
        number_of(threads, "thread"),
        output.display()
    );
    if !omitted.is_empty() {
        let omitted: Vec<String> = omitted.iter().map(ToString::to_string).collect();
        say!("the trace lacks: {}", omitted.join("; "));
    }
    Ok(Exit::Done)
}
