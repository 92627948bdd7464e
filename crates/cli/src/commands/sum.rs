//! `dioptra sum`.

use super::report::Options;
use crate::exit::Exit;
use std::path::PathBuf;

/// Arguments of `dioptra sum`.
#[derive(clap::Args)]
#[command(after_help = "\
Modules are the same where their build ids are, else their paths, and functions where their addresses in a module are; processes and threads where their numbers and names are. Every count of the sum is exactly the sum of the profiles' counts. Times are since the first sample of each profile.

Examples:
  dioptra sum run1.data run2.data run3.data    functions over three runs
  dioptra sum host*.data --by program,module   what ran on several machines
  dioptra sum a.data b.data --format csv")]
pub struct Arguments {
    /// The profiles, or the directories of traces; one may be `-`, standard input
    #[arg(value_name = "FILE", required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    options: Options,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    arguments.options.run(&arguments.inputs)
}
