//! `cargo xtask pmu-test`: what needs hardware counters, checked on a machine without them.
//!
//! QEMU emulates the counters of 64-bit Arm exactly where it counts instructions (`-icount`): one instruction is one
//! cycle, an overflow of the cycle counter is reported at the very instruction. So a Debian kernel for Arm runs there with
//! dioptra and programs whose every instruction is known from their disassembly, and each number that dioptra shows can be
//! held against one that was known before.

mod checks;
pub(crate) mod cross;
mod debian;
mod initramfs;
mod listing;
pub(crate) mod machine;
mod programs;
mod table;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tools::{Tool, command};
use crate::{root, tools};
use checks::{Guest, Results};
use machine::{Machine, Script};
use table::Table;

/// The exit status if the machine or the network lacks what it takes: neither passed nor failed.
pub(crate) const CANNOT: u8 = 3;
/// The suite that the guest's kernel and busybox come from: its 6.12 reads groups of counters that threads inherit.
const SUITE: &str = "trixie";
/// Where a guest has hung rather than been slow.
const LIMIT: Duration = Duration::from_secs(900);

/// The tools that it takes, as `tools` has them.
const TOOLS: &[Tool] = &[
    command("qemu-system-aarch64", &["qemu-system-arm"]),
    command("aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu"]),
    command("aarch64-linux-gnu-objdump", &["binutils-aarch64-linux-gnu"]),
    command("tar", &["tar"]),
];

/// The checks to run, and the files to run them with.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the steps whose name contains this; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// Evaluate the results of the last run again, without a guest
    #[arg(long)]
    again: bool,
    /// Install no tools
    #[arg(long)]
    no_install: bool,
    /// Look for newer versions of what was downloaded
    #[arg(long)]
    refresh: bool,
    /// A kernel image for 64-bit Arm instead of Debian's
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Where Rust's standard library for Arm comes from
    #[arg(long, value_enum, default_value = "auto")]
    std: cross::StandardLibrary,
}

/// Why the chore cannot run here, which is no failure of what it checks.
#[derive(Debug)]
pub(crate) struct Unavailable(String);

impl Unavailable {
    pub(crate) fn because(reason: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Unavailable(reason.into()))
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Runs the chore: 0 if all checks passed, 1 if one failed, 3 if it cannot run here.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match check(arguments) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.is::<Unavailable>() => {
            eprintln!("xtask: pmu-test cannot run here: {error:#}");
            Ok(ExitCode::from(CANNOT))
        }
        Err(error) => Err(error),
    }
}

fn check(arguments: &Arguments) -> Result<bool> {
    let start = Instant::now();
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = root().join(target).join("pmu");
    let built = folder.join("programs");
    std::fs::create_dir_all(&built).with_context(|| built.display().to_string())?;

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
    let guest = Guest::build(&built)?;
    let steps: Vec<_> = checks::steps(&guest)?
        .into_iter()
        .filter(|step| {
            arguments.only.is_empty() || arguments.only.iter().any(|only| step.name.contains(only))
        })
        .collect();
    let results = folder.join("results");
    let mut table = Table::default();
    if !arguments.again {
        let scripts: Vec<_> = steps
            .iter()
            .map(|step| Script {
                name: step.name.to_string(),
                lines: step.lines.clone(),
            })
            .collect();
        let boot = Boot {
            refresh: arguments.refresh,
            kernel: arguments.kernel.as_deref(),
            package: KERNEL,
            std: arguments.std,
        };
        if let Err(error) = boot.run(guest.files(), &scripts, &results) {
            if error.is::<Unavailable>() {
                return Err(error);
            }
            table.failure("the guest runs to its end", &format!("{error:#}"));
        }
    }
    for step in &steps {
        let results = Results::new(&results, step.name);
        if let Err(error) = (step.check)(&guest, &results, &mut table) {
            table.failure(step.name, &format!("{error:#}"));
        }
    }
    table.print();
    println!(
        "{} in {:.0} s; the guest's files and console: {}",
        table.summary(),
        start.elapsed().as_secs_f64(),
        results.display()
    );
    Ok(table.passed())
}

/// The files and options that a guest is booted with.
pub(crate) struct Boot<'a> {
    /// Look for newer versions of what was downloaded.
    pub refresh: bool,
    /// The kernel, else Debian's ...
    pub kernel: Option<&'a Path>,
    /// ... of this package, which has the drivers that are needed built in.
    pub package: &'a str,
    /// Where Rust's standard library for Arm comes from.
    pub std: cross::StandardLibrary,
}

impl Boot<'_> {
    /// Runs scripts in a guest that has dioptra and these files; their results are in folders of `results` then.
    ///
    /// # Errors
    /// [`Unavailable`], or if the guest does not come to its end.
    pub(crate) fn run(
        &self,
        more: Vec<(String, PathBuf)>,
        scripts: &[Script],
        results: &Path,
    ) -> Result<()> {
        let cache = cache()?;
        let archive = debian::Archive::new(SUITE, &cache);
        let busybox = archive
            .package("busybox-static:arm64", self.refresh, |_| {
                Ok("busybox-static:arm64".into())
            })?
            .join("usr/bin/busybox");
        let kernel = match self.kernel {
            Some(kernel) => kernel.to_path_buf(),
            None => kernel(&archive, self.package, self.refresh)?,
        };
        println!("building dioptra for the guest");
        let dioptra = cross::build(self.std, &cache)?;
        let stripped = results.with_file_name("dioptra");
        cross::strip(&dioptra, &stripped)?;
        let mut files = vec![("bin/dioptra".to_string(), stripped)];
        files.extend(more);
        println!("booting {}", kernel.display());
        Machine {
            kernel: &kernel,
            busybox: &busybox,
            files,
            results: results.to_path_buf(),
            limit: LIMIT,
        }
        .run(scripts)
    }
}

/// Debian's kernel for virtual machines: small, and the drivers needed here are built in.
pub(crate) const KERNEL: &str = "linux-image-cloud-arm64";

/// The image of the kernel that a package of Debian's stands for.
fn kernel(archive: &debian::Archive, package: &str, refresh: bool) -> Result<PathBuf> {
    let package = format!("{package}:arm64");
    let folder = archive
        .package(&package, refresh, |archive| {
            Ok(format!(
                "{}:arm64",
                archive.depends(&package)?.trim_end_matches(":arm64")
            ))
        })?
        .join("boot");
    std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz"))
        })
        .with_context(|| format!("no kernel in {}", folder.display()))
}

/// Downloads outlive the target folder.
fn cache() -> Result<PathBuf> {
    let folder = crate::cache()
        .map_err(|error| Unavailable::because(error.to_string()))?
        .join("pmu");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}
