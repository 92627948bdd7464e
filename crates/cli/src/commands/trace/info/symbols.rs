//! Functions, by module.

use super::Naming;
use crate::output::say;
use anyhow::Context;
use dioptra_symbols::{ModuleKind, ModuleRequest, build_id};
use dioptra_tables::escape;
use dioptra_tracedata::Trace;
use std::io::Write;
use std::path::Path;

/// Writes the functions of a trace's table, by module.
pub fn of_trace(trace: &Trace, naming: &Naming, out: &mut impl Write) -> anyhow::Result<()> {
    let names = naming.names(trace)?;
    for module in trace.modules() {
        writeln!(out, "Functions of {}", escape(&module.path))?;
        let count = trace.function_count() as u64;
        let end = (u64::from(module.first) + u64::from(module.count)).min(count);
        for id in u64::from(module.first)..end {
            let entry = trace.function(id as u32);
            let name = escape(names.get(id as u32));
            writeln!(
                out,
                "  {id:>6} {:>12x} {:>8}  {name}",
                entry.place, entry.size
            )?;
        }
    }
    Ok(())
}

/// Writes all functions of a file.
pub fn of_file(file: &Path, naming: &Naming, out: &mut impl Write) -> anyhow::Result<()> {
    // The build id, not the path, decides which debug files belong to the file.
    let build_id = build_id(file).with_context(|| format!("reading {}", file.display()))?;
    let path = file.canonicalize()?;
    let symbols = naming.symbolizer()?.load(&ModuleRequest {
        kind: ModuleKind::File,
        path: &path,
        build_id: build_id.as_deref(),
    });
    writeln!(out, "Functions of {}", escape(&file.to_string_lossy()))?;
    for function in symbols.functions() {
        let (start, size) = (function.start, function.size);
        let name = naming.shown(&function.name, function.raw_name);
        writeln!(out, "  {start:>12x} {size:>8}  {}", escape(&name))?;
    }
    if symbols.is_empty() {
        say!("{}: has no functions with names", file.display());
    }
    Ok(())
}
