//! `dioptra report`.

use std::process::ExitCode;

/// Arguments of `dioptra report`.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
