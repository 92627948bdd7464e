//! `dioptra export --to parquet`: a profile or a trace as a store of its own, by the program `dioptra-store`.

use super::{Arguments, Format, StackValue};
use crate::commands::store::become_store;
use crate::exit::Exit;
use anyhow::bail;
use dioptra_tracelayout::directory;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Adds the profile or the trace to the store that `-o` names, in place of this process.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(option) = arguments.selection.given().or(arguments.calls.given()) {
        bail!("{option}: --to parquet writes everything, and SQL chooses; leave it out");
    }
    if arguments.value != StackValue::Weight {
        bail!("--value: the tables have samples and weights; leave it out");
    }
    let symbols = arguments.selection.symbols()?;
    if !symbols.demangle {
        bail!("--no-demangle: dioptra-store demangles names; leave it out");
    }
    let usual = || PathBuf::from(Format::Parquet.usual_output());
    let output = arguments.output.clone().unwrap_or_else(usual);
    if output == Path::new("-") {
        bail!("-o -: the tables are files in a folder, which standard output is not");
    }
    let input = arguments.data.clone().unwrap_or_else(|| arguments.input());
    // A name that looks like an option stays a name.
    let input = match input.is_absolute() {
        true => input,
        false => Path::new(".").join(input),
    };
    let is_trace = input.join(directory::INFO).is_file();
    let mut words: Vec<OsString> = vec!["add".into(), input.into(), "--to".into(), output.into()];
    let mut add = |option: &str, value: &OsStr| words.extend([option.into(), value.to_owned()]);
    if let Some(symfs) = &symbols.symfs {
        add("--symfs", symfs.as_os_str());
    }
    if let Some(vmlinux) = &symbols.vmlinux {
        add("--vmlinux", vmlinux.as_os_str());
    }
    if arguments.no_inline {
        if is_trace {
            bail!("--no-inline: a trace has no calls of inlined functions; leave it out");
        }
        words.push("--no-inline".into());
    }
    become_store(words)
}
