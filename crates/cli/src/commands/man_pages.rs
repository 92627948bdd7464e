//! `dioptra man-pages`: a man page for every sub-command, for packages.

use crate::exit::Exit;
use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `dioptra man-pages`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra man-pages ~/.local/share/man/man1    then `man dioptra-record` finds its page")]
pub struct Arguments {
    /// The folder of the pages, made if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes a man page for `command` and for each command below it.
pub fn run(arguments: &Arguments, command: Command) -> anyhow::Result<Exit> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    // `help` would have a page for each command a second time.
    let mut command = command.disable_help_subcommand(true);
    // The arguments of sub-commands are only defined when the command is built.
    command.build();
    write_page(&command, folder)?;
    Ok(Exit::Done)
}

fn write_page(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in shown {
        write_page(below, folder)?;
    }
    let page = Man::new(command.clone());
    let path = folder.join(page.get_filename());
    let text = page_text(&page, command).with_context(|| path.display().to_string())?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Returns the text of a page. The lines behind the options, such as the examples, keep their line breaks and columns.
fn page_text(page: &Man, command: &Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        page.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    let behind = command.get_after_long_help().or(command.get_after_help());
    if let Some(behind) = behind {
        text.extend_from_slice(b".SH NOTES\n.EX\n");
        for line in behind.to_string().lines() {
            text.extend_from_slice(roff_line(line).as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(b".EE\n");
    }
    if command.get_version().is_some() {
        page.render_version_section(&mut text)?;
    }
    Ok(text)
}

/// Returns a line of text in which no character has a meaning to roff.
fn roff_line(line: &str) -> String {
    let mut text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        text.insert_str(0, "\\&");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::roff_line;

    #[test]
    fn lines_are_no_requests() {
        assert_eq!(roff_line("  -a \\n"), "  \\-a \\en");
        assert_eq!(roff_line(".SH X"), "\\&.SH X");
        assert_eq!(roff_line("'quoted'"), "\\&'quoted'");
    }
}
