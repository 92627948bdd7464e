//! `cargo xtask fresh`: the README's commands on a machine that has nothing but Debian and Rust.
//!
//! A tree of Debian's packages is made once by debootstrap and kept in the cache. Each run copies it, clones HEAD into
//! the copy and types the README's commands there, as root or as an ordinary user whom sudo refuses. Of this machine the
//! tree sees the kernel (`/proc`, `/sys`, `/dev`), the Rust toolchain (read-only), a copy of cargo's registry, and the
//! parts of apt's configuration that tell how the mirror is reached.

pub mod tree;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tools::{self, Tool, command};
use crate::{root, test};
use tree::Tree;

/// The tools that make and enter the tree.
const TOOLS: &[Tool] = &[
    command("debootstrap", &["debootstrap"]),
    command("git", &["git"]),
    command("unshare", &["util-linux"]),
    command("setpriv", &["util-linux"]),
    command("chroot", &["coreutils"]),
];

/// The options of `cargo xtask fresh`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Who types the commands
    #[arg(long = "as", value_enum, default_value = "both")]
    who: Who,
    /// Leave the trees in place after the run
    #[arg(long)]
    keep: bool,
    /// Make the Debian tree anew instead of taking the one from the cache
    #[arg(long)]
    again: bool,
    /// Take this machine's cargo-nextest into the tree
    ///
    /// Without it the tests run by `cargo test`, unless cargo-nextest lies beside cargo.
    #[arg(long)]
    nextest: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Who {
    /// Root, who can install what is missing
    Root,
    /// An ordinary user whom sudo refuses
    User,
    /// First root, then the user, each in a tree of their own
    Both,
}

/// A user who types the README's commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// The user with id 0.
    Root,
    /// A user without privileges.
    User,
}

impl Account {
    /// Returns the account's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }

    /// Returns the home folder in the tree.
    pub fn home(self) -> &'static str {
        match self {
            Self::Root => "/root",
            Self::User => "/home/user",
        }
    }
}

/// Runs the README's commands in clean trees; the exit code is 1 if one of them fails.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !dioptra_testprograms::is_root() {
        bail!("only root can make and enter a Debian tree: run it as root");
    }
    println!("--- tools");
    tools::provide_these(TOOLS, true);
    if let Some(missing) = TOOLS.iter().find(|tool| !tool.is_there()) {
        bail!(
            "{} is missing: apt-get install {}",
            missing.found_as,
            missing.first_package()
        );
    }
    let readme = fs::read_to_string(root().join("README.md")).context("README.md")?;
    let commands = commands_of(&readme)?;
    tell_what_is_tested()?;

    let accounts: &[Account] = match arguments.who {
        Who::Root => &[Account::Root],
        Who::User => &[Account::User],
        Who::Both => &[Account::Root, Account::User],
    };
    let base = tree::base(arguments.again)?;
    let logs = root().join("target/fresh/logs");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let mut summary = Vec::new();
    let mut passed = true;
    for &account in accounts {
        println!("--- a tree for {}", account.name());
        let start = Instant::now();
        let tree = Tree::copy(&base, account, arguments.nextest)?;
        println!("--- ready in {:.1} s", start.elapsed().as_secs_f64());
        for (number, typed) in (1..).zip(&commands) {
            let log = logs.join(format!("{}-{number}.log", account.name()));
            println!("--- as {}: {typed}", account.name());
            let start = Instant::now();
            let status = follow(tree.command(typed), &log)?;
            let seconds = start.elapsed().as_secs_f64();
            let outcome = if status.success() {
                "passed".into()
            } else {
                passed = false;
                show_end(&log)?;
                format!("FAILED ({status})")
            };
            let line = format!(
                "{:<4}  {outcome}  {seconds:7.1} s  {typed}  ({})",
                account.name(),
                log.display()
            );
            println!("--- {line}");
            summary.push(line);
        }
        if arguments.keep {
            println!("--- kept: {}", tree.folder().display());
        } else {
            tree.remove()?;
        }
    }
    println!("\n--- summary");
    for line in &summary {
        println!("{line}");
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the commands of the README's first indented block.
fn commands_of(readme: &str) -> Result<Vec<String>> {
    let commands: Vec<String> = readme
        .lines()
        .skip_while(|line| !line.starts_with("    "))
        .take_while(|line| line.starts_with("    "))
        .map(|line| line.trim().to_owned())
        .collect();
    if commands.len() != 2 || !commands.iter().all(|line| line.starts_with("cargo ")) {
        bail!("README.md's first indented block should be two cargo commands, and is {commands:?}");
    }
    Ok(commands)
}

/// Prints the commit that is cloned, and whether the working tree differs from it.
fn tell_what_is_tested() -> Result<()> {
    let git = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .output()
            .context("running git")?;
        if !output.status.success() {
            bail!("git {}: {}", arguments.join(" "), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    println!("--- HEAD is {}", git(&["log", "-1", "--format=%h %s"])?);
    if !git(&["status", "--porcelain"])?.is_empty() {
        println!("warning: what is not committed takes no part");
    }
    Ok(())
}

/// Runs a command with its output in a file, of which the steps and the skipped tests are shown as they come.
fn follow(mut command: Command, log: &Path) -> Result<ExitStatus> {
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("making a pipe")?)
        .stderr(writer);
    let mut child = command.spawn().context("entering the tree")?;
    // The command holds the pipe's writing ends, and reading would not end.
    drop(command);
    let mut file = File::create(log).with_context(|| log.display().to_string())?;
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut of_a_step = false;
    loop {
        line.clear();
        if reader
            .read_until(b'\n', &mut line)
            .context("reading the output")?
            == 0
        {
            break;
        }
        file.write_all(&line)
            .with_context(|| log.display().to_string())?;
        let text = String::from_utf8_lossy(&line);
        if text.starts_with("--- ") {
            of_a_step = [test::TOOLS_STEP, test::SKIPPED_STEP]
                .iter()
                .any(|name| text.trim_end() == format!("--- {name}"));
            print!("    {text}");
        } else if of_a_step {
            print!("    {text}");
        }
        let _ = std::io::stdout().flush();
    }
    child.wait().context("waiting for the command")
}

/// Prints the last lines of a failed command's output.
fn show_end(log: &Path) -> Result<()> {
    const LINES: usize = 40;
    let text = fs::read(log).with_context(|| log.display().to_string())?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        println!("    | {line}");
    }
    Ok(())
}

/// Returns the folder that holds the Debian tree and its copies.
fn cache() -> Result<PathBuf> {
    let folder = crate::cache()?.join("fresh");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_begins_with_two_commands() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let commands = commands_of(&readme).unwrap();
        assert!(commands[0].starts_with("cargo run --release -- record"));
        assert_eq!(commands[1], "cargo xtask test");
        assert!(commands_of("no block\n").is_err());
        assert!(commands_of("    cargo one\n    two\n").is_err());
    }
}
