//! `dioptra record`.

use std::process::ExitCode;

/// Arguments of `dioptra record`.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
