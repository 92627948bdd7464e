//! `cargo xtask arm-test`: calls of programs for 64-bit Arm, traced in a virtual machine of QEMU's.
//!
//! `tests/programs/trace-hard.cpp` writes a log of its own calls, through exceptions, jumps, signals and exchanged stacks.
//! The program is built in all ways in which calls can be traced there, at all levels of optimisation; each trace has to be
//! the log. Traces that were recorded by rules have to be what reading by the same rules makes of one with all calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::pmu_test::machine::Script;
use crate::pmu_test::{Boot, CANNOT, KERNEL, Unavailable, cross};
use crate::tools::{Tool, command};
use crate::{root, tools};

/// The tools that it takes, as `tools` has them.
const TOOLS: &[Tool] = &[
    command("qemu-system-aarch64", &["qemu-system-arm"]),
    command("aarch64-linux-gnu-g++", &["g++-aarch64-linux-gnu"]),
    command("tar", &["tar"]),
];

/// The libraries that the programs need.
const LIBRARIES: [&str; 5] = [
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
];

/// A way to make functions traceable: a name, flags, and options of the recording.
const METHODS: [(&str, &[&str], &str); 6] = [
    ("patchable", &["-fpatchable-function-entry=2"], ""),
    (
        "guarded",
        &[
            "-fpatchable-function-entry=2",
            "-mbranch-protection=standard",
        ],
        "",
    ),
    ("mcount", &["-pg"], ""),
    ("cygprof", &["-finstrument-functions"], ""),
    ("plain", &[], "-P ."),
    ("signed", &["-mbranch-protection=standard"], "-P ."),
];

const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];

/// The program's cases, and the number of rounds of each.
const CASES: [(&str, u32); 5] = [
    ("exceptions", 10),
    ("jumps", 20),
    ("signals", 20),
    ("coroutines", 10),
    ("forks", 5),
];

/// Rules, by which one case is recorded, and how often that does what it does.
const RULES: [(&str, &str); 5] = [
    ("filter", "-F between"),
    ("notrace", "-N leaf"),
    ("depth", "-D 3"),
    ("both", "-F catcher -N thrower -D 2"),
    ("sampled", "-F between@sample=3"),
];
const RULED: (&str, u32) = ("exceptions", 20);
/// The level of optimisation at which rules are looked at.
const RULED_LEVEL: &str = "-O2";

/// Debian's kernel with large pages.
const LARGE_PAGES: &str = "linux-image-arm64-16k";

/// The checks to run, and the files to run them with.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the ways whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// A kernel with pages of 16 KiB
    #[arg(long)]
    large_pages: bool,
    /// Install no tools
    #[arg(long)]
    no_install: bool,
    /// Where Rust's standard library for Arm comes from
    #[arg(long, value_enum, default_value = "auto")]
    std: cross::StandardLibrary,
}

/// Runs the chore: 0 if all traces are right, 1 if one is not, 3 if it cannot run here.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match check(arguments) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.is::<Unavailable>() => {
            eprintln!("xtask: arm-test cannot run here: {error:#}");
            Ok(ExitCode::from(CANNOT))
        }
        Err(error) => Err(error),
    }
}

fn check(arguments: &Arguments) -> Result<bool> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = root().join(target).join("arm");
    let built = folder.join("programs");
    fs::create_dir_all(&built).with_context(|| built.display().to_string())?;
    tools::provide_these(TOOLS, !arguments.no_install);
    for tool in TOOLS {
        if !tool.is_there() {
            return Err(Unavailable::because(format!(
                "{} is missing: apt-get install {}",
                tool.found_as,
                tool.first_package()
            )));
        }
    }

    let mut files = Vec::new();
    for library in LIBRARIES {
        files.push((format!("lib/{library}"), find_library(library)?));
    }
    let mut scripts = Vec::new();
    let wanted = |name: &str| {
        arguments
            .only
            .as_ref()
            .is_none_or(|only| name.contains(only))
    };
    for (method, flags, options) in METHODS.into_iter().filter(|(name, ..)| wanted(name)) {
        for level in LEVELS {
            let name = format!("{method}{level}");
            let program = built.join(&name);
            build(&program, level, flags)?;
            files.push((format!("programs/{name}"), program));
            let mut lines: String = CASES.iter().map(|(case, count)| {
                format!(
                    "rm -rf /tmp/trace; run {case} dioptra trace record --no-libcall --no-sched {options} -d /tmp/trace \
                     /programs/{name} {case} {count}\n\
                     run {case}.dump dioptra trace dump -d /tmp/trace\n"
                )
            }).collect();
            if level == RULED_LEVEL {
                let (case, count) = RULED;
                let record = format!("dioptra trace record --no-libcall --no-sched {options}");
                for (rule, words) in RULES {
                    lines.push_str(&format!(
                        "rm -rf /tmp/trace /tmp/ruled\n\
                         run {rule} {record} -d /tmp/trace /programs/{name} {case} {count}\n\
                         run {rule}.read dioptra trace dump -d /tmp/trace {words}\n\
                         run {rule}.ruled {record} {words} -d /tmp/ruled /programs/{name} {case} {count}\n\
                         run {rule}.dump dioptra trace dump -d /tmp/ruled\n"
                    ));
                }
            }
            scripts.push(Script { name, lines });
        }
    }
    let results = folder.join("results");
    let boot = Boot {
        refresh: false,
        kernel: None,
        package: if arguments.large_pages {
            LARGE_PAGES
        } else {
            KERNEL
        },
        std: arguments.std,
    };
    boot.run(files, &scripts, &results)?;

    let (mut right, mut wrong) = (0, 0);
    let mut judge = |script: &Script, what: &str, outcome: Result<()>| match outcome {
        Ok(()) => right += 1,
        Err(error) => {
            println!("{} {what}: {error:#}", script.name);
            wrong += 1;
        }
    };
    for script in &scripts {
        let folder = results.join(&script.name);
        for (case, _) in CASES {
            judge(script, case, compare(&folder, &script.name, case));
        }
        if script.name.ends_with(RULED_LEVEL) {
            for (rule, _) in RULES {
                judge(script, rule, compare_ruled(&folder, rule));
            }
        }
    }
    println!(
        "{right} of {} traces are right; the guest's files and console: {}",
        right + wrong,
        results.display()
    );
    Ok(wrong == 0 && right > 0)
}

/// Where the cross compiler has a library.
fn find_library(name: &str) -> Result<PathBuf> {
    let output = Command::new("aarch64-linux-gnu-g++")
        .arg(format!("-print-file-name={name}"))
        .stdin(Stdio::null())
        .output()
        .context("running aarch64-linux-gnu-g++")?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    fs::canonicalize(&path).with_context(|| format!("the cross compiler has no {name}"))
}

fn build(program: &Path, level: &str, flags: &[&str]) -> Result<()> {
    let output = Command::new("aarch64-linux-gnu-g++")
        .args([level, "-pthread", "-fno-optimize-sibling-calls"])
        .args(flags)
        .arg(root().join("tests/programs/trace-hard.cpp"))
        .arg("-o")
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .context("running aarch64-linux-gnu-g++")?;
    if !output.status.success() {
        bail!(
            "{} does not build:\n{}",
            program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Whether a trace is the program's log.
fn compare(folder: &Path, name: &str, case: &str) -> Result<()> {
    let read = |file: String| {
        let path = folder.join(file);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let status = read(format!("{case}.status"))?;
    if status.trim() != "0" {
        bail!(
            "ended with {}: {}",
            status.trim(),
            read(format!("{case}.err"))?
        );
    }
    let log = read(format!("{case}.out"))?;
    let mut log: Vec<String> = log.lines().map(str::to_owned).collect();
    if log.len() < 5 {
        bail!("the program has hardly said anything");
    }
    let functions: BTreeSet<String> = log.iter().map(|line| line[1..].to_owned()).collect();
    let dump = read(format!("{case}.dump.out"))?;
    let streams = dump
        .split("\nreading stream ")
        .map(|stream| stream.lines().filter_map(event).collect::<Vec<_>>());
    let begins = format!("+{case}");
    let mut streams = streams.filter(|stream| stream.contains(&begins));
    let mut found = streams
        .next()
        .with_context(|| format!("no call of {case} was recorded"))?;
    found.retain(|line| functions.contains(&line[1..]));
    if name.starts_with("cygprof") && case == "exceptions" {
        // Functions say that they end, too, when an exception leaves them.
        found.retain(|line| line.starts_with('+'));
        log.retain(|line| line.starts_with('+'));
    }
    differ(&found, &log)
}

/// Whether a trace that was recorded by a rule is what reading by it makes of one with all calls.
fn compare_ruled(folder: &Path, rule: &str) -> Result<()> {
    let read = |file: String| {
        let path = folder.join(file);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    for part in ["read", "ruled", "dump"] {
        let status = read(format!("{rule}.{part}.status"))?;
        if status.trim() != "0" {
            bail!(
                "{part} ended with {}: {}",
                status.trim(),
                read(format!("{rule}.{part}.err"))?
            );
        }
    }
    let events = |file: String| -> Result<Vec<String>> {
        Ok(read(file)?.lines().filter_map(event).collect())
    };
    let wanted = events(format!("{rule}.read.out"))?;
    let found = events(format!("{rule}.dump.out"))?;
    if wanted.is_empty() {
        bail!("the rule leaves nothing");
    }
    differ(&found, &wanted)
}

/// Where they differ.
fn differ(found: &[String], wanted: &[String]) -> Result<()> {
    if found != wanted {
        let at = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        bail!(
            "differs at line {at}: {:?} was recorded, {:?} happened",
            found.get(at),
            wanted.get(at)
        );
    }
    Ok(())
}

/// An entry or an exit in a dump, as logs have it.
fn event(line: &str) -> Option<String> {
    let (sign, rest) = match line.split_once("[entry] ") {
        Some((_, rest)) => ('+', rest),
        None => ('-', line.split_once("[exit ] ")?.1),
    };
    let name = rest.split('(').next()?;
    Some(format!("{sign}{name}"))
}
