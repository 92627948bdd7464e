//! The Debian package in a tree that has nothing but Debian: installed, used by an ordinary user and by root, removed.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::fresh::tree::{self, PlainTree};

/// A line that is typed in the tree, and a text that its output must hold.
struct Step {
    /// The line, for a shell.
    typed: &'static str,
    /// The text; empty if the exit status says enough.
    expected: &'static str,
}

const STEPS: &[Step] = &[
    Step {
        typed: "! command -v dioptra",
        expected: "",
    },
    Step {
        typed: "apt-get install --yes /tmp/dioptra.deb",
        expected: "Setting up dioptra",
    },
    Step {
        typed: "dioptra --version",
        expected: "dioptra ",
    },
    Step {
        typed: "zcat /usr/share/man/man1/dioptra-record.1.gz",
        expected: ".SH OPTIONS",
    },
    Step {
        typed: "ls /usr/share/man/man1",
        expected: "dioptra-trace-record.1.gz",
    },
    // A line of Bash that completes `dioptra rec`, as a press of the tabulator does.
    Step {
        typed: "bash -c '. /usr/share/bash-completion/completions/dioptra; COMP_WORDS=(dioptra rec); COMP_CWORD=1; \
                _dioptra dioptra rec dioptra; echo \"${COMPREPLY[@]}\"'",
        expected: "record",
    },
    Step {
        typed: "ls /usr/share/zsh/vendor-completions /usr/share/fish/vendor_completions.d",
        expected: "_dioptra",
    },
    Step {
        typed: "cat /usr/share/doc/dioptra/copyright",
        expected: "MIT License",
    },
    Step {
        typed: "grep -l Apache /usr/share/doc/dioptra/LICENSE-APACHE*",
        expected: "LICENSE-APACHE",
    },
    Step {
        typed: "dioptra record -o /tmp/perf.data -- sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'",
        expected: "samples of",
    },
    Step {
        typed: "dioptra report -i /tmp/perf.data --by module --format csv",
        expected: "dash",
    },
    Step {
        typed: "dioptra trace -d /tmp/trace -P main true && dioptra trace info -d /tmp/trace",
        expected: "",
    },
    Step {
        typed: "apt-get remove --yes dioptra && ! command -v dioptra",
        expected: "",
    },
];

/// Installs a package in a clean tree and types the steps there; the exit code is 1 if one of them fails.
pub fn check(package: &Path) -> Result<ExitCode> {
    if !dioptra_testprograms::is_root() {
        bail!("only root can make and enter a Debian tree: run it as root");
    }
    let base = tree::base(false)?;
    let tree = PlainTree::copy(&base, "deb")?;
    let to = tree.folder().join("tmp/dioptra.deb");
    fs::copy(package, &to).with_context(|| to.display().to_string())?;
    let mut passed = true;
    for step in STEPS {
        let output = tree
            .command(step.typed)
            .output()
            .context("entering the tree")?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        if output.status.success() && text.contains(step.expected) {
            println!("passed  {}", step.typed);
            continue;
        }
        passed = false;
        println!("FAILED  {} ({})", step.typed, output.status);
        println!("        expected: {:?}", step.expected);
        text.lines().for_each(|line| println!("        | {line}"));
    }
    tree.remove()?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
