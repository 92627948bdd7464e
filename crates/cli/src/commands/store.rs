//! `dioptra store` and `dioptra query`: the program `dioptra-store` does the work.
//!
//! Parquet and DataFusion take minutes to compile, so they live in a program of its own.

use crate::exit::Exit;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The program's name.
const PROGRAM: &str = "dioptra-store";

/// Arguments of `dioptra store`.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  dioptra store add perf.data --to profiles --service web
  dioptra store list --store profiles
  dioptra store verify --store profiles
  dioptra store compact --store profiles
  dioptra store gc --store profiles
  dioptra store --help                       all of it

The program dioptra-store does the work. It lies beside dioptra or on PATH:
  cargo install --path crates/store"
)]
pub struct StoreArguments {
    /// The words for dioptra-store: add, list, compact, gc or verify, and their options
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    words: Vec<OsString>,
}

/// Arguments of `dioptra query`.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  dioptra query --store profiles top-functions --since 7d --group-by service
  dioptra query --store profiles 'SELECT service, sum(weight) FROM samples GROUP BY service'
  dioptra query --help                       all of it

The program dioptra-store does the work. It lies beside dioptra or on PATH:
  cargo install --path crates/store"
)]
pub struct QueryArguments {
    /// The words for dioptra-store: SQL or a question, and options
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    words: Vec<OsString>,
}

/// Runs `dioptra-store` with the words, in place of this process.
pub fn run(arguments: StoreArguments) -> anyhow::Result<Exit> {
    become_store(arguments.words)
}

/// Runs `dioptra-store query` with the words, in place of this process.
pub fn run_query(arguments: QueryArguments) -> anyhow::Result<Exit> {
    let mut words = vec![OsString::from("query")];
    words.extend(arguments.words);
    become_store(words)
}

/// Runs `dioptra-store` with words, in place of this process.
///
/// # Errors
/// The program is not found, or does not start.
pub fn become_store(words: Vec<OsString>) -> anyhow::Result<Exit> {
    let program = store_program()?;
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// Returns the program that lies beside this one, else the first on PATH.
pub fn store_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    let mut programs = folders.map(|folder| folder.join(PROGRAM));
    match programs.find(|program| program.is_file()) {
        Some(program) => Ok(program),
        None => bail!(
            "{PROGRAM} is neither beside dioptra nor on PATH; build it with `cargo install --path crates/store` in \
             dioptra's sources"
        ),
    }
}
