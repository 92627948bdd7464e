//! `dioptra completions`: the options of every sub-command for a shell's completion.

use crate::exit::Exit;
use anyhow::Context;
use clap::Command;
use clap_complete::{Shell, generate};
use std::io::{self, Write};

/// Arguments of `dioptra completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra completions bash > ~/.local/share/bash-completion/completions/dioptra
  dioptra completions zsh > ~/.zfunc/_dioptra
  dioptra completions fish > ~/.config/fish/completions/dioptra.fish

The Debian package installs those of bash, zsh and fish.")]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the script that completes the options of `command` in a shell.
pub fn run(arguments: &Arguments, mut command: Command) -> anyhow::Result<Exit> {
    let name = command.get_name().to_owned();
    // The generator panics if its writer fails, as that of a closed pipe does.
    let mut script = Vec::new();
    generate(arguments.shell, &mut command, name, &mut script);
    io::stdout()
        .lock()
        .write_all(&script)
        .context("writing the completions")?;
    Ok(Exit::Done)
}
