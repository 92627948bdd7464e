//! Sources of names beyond this machine's own files: arguments of every command that shows functions.

use anyhow::{Context, bail};
use dioptra_report::SourceFiles;
use dioptra_symbols::{Debuginfod, SymbolOptions};
use std::path::PathBuf;

/// The variable that asks for debug files, in place of `--debuginfod`.
const ASKED: &str = "DIOPTRA_DEBUGINFOD";

/// Arguments that name sources of symbols.
#[derive(Clone, clap::Args)]
pub struct SymbolSources {
    /// The recorded kernel's vmlinux: functions, instructions and, with debug information, source lines [default:
    /// looked for by build id]
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Fetch missing debug files from these servers, or from those of DEBUGINFOD_URLS; DIOPTRA_DEBUGINFOD=1 does the
    /// same. Nothing is asked otherwise
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    debuginfod: Option<String>,
}

/// Arguments of every command that names the functions of profiles.
#[derive(Clone, clap::Args)]
pub struct ProfileSymbols {
    /// Show C++ and Rust names as linkers see them
    #[arg(long)]
    no_demangle: bool,
    /// Look for the recorded files below this directory
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    sources: SymbolSources,
}

impl ProfileSymbols {
    /// Returns the options that say where names and code are looked for.
    ///
    /// # Errors
    /// A folder or file that was named does not exist.
    pub fn options(&self) -> anyhow::Result<SymbolOptions> {
        if let Some(directory) = &self.symfs
            && !directory.is_dir()
        {
            bail!(
                "--symfs {}: no such directory; give the one that holds the recorded machine's files",
                directory.display()
            );
        }
        self.sources.add_to(SymbolOptions {
            demangle: !self.no_demangle,
            symfs: self.symfs.clone(),
            ..SymbolOptions::default()
        })
    }
}

/// Arguments of every command that shows source text beside the names of functions.
#[derive(Clone, clap::Args)]
pub struct ProfileSource {
    #[command(flatten)]
    pub symbols: ProfileSymbols,
    /// Source files recorded below OLD lie below NEW; may be given several times
    #[arg(long, value_name = "OLD=NEW", value_parser = renamed)]
    source_path: Vec<(String, String)>,
}

impl ProfileSource {
    /// Returns where source files are looked for.
    pub fn files(&self) -> SourceFiles {
        SourceFiles {
            symfs: self.symbols.symfs.clone(),
            renamed: self.source_path.clone(),
        }
    }
}

/// Parses `OLD=NEW`.
fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err(
            "give the recorded directory and its place here, such as /build=/home/me/src"
                .to_owned(),
        ),
    }
}

/// Returns the folder of files that can be made anew.
pub fn cache() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).map(PathBuf::from);
    // A missing home folder, as service users have, is not created.
    let home = || Some(of("HOME").filter(|home| home.is_dir())?.join(".cache"));
    let cache = of("XDG_CACHE_HOME").or_else(home);
    let cache = cache.filter(|path| path.is_absolute());
    Some(cache?.join("dioptra"))
}

impl SymbolSources {
    /// Adds the wanted sources to the options.
    pub fn add_to(&self, options: SymbolOptions) -> anyhow::Result<SymbolOptions> {
        if let Some(path) = &self.vmlinux
            && !path.is_file()
        {
            bail!(
                "--vmlinux {}: no such file; give the recorded kernel's ELF file with its symbols",
                path.display()
            );
        }
        Ok(SymbolOptions {
            vmlinux: self.vmlinux.clone(),
            debuginfod: self.servers()?,
            kallsyms_cache: cache(),
            ..options
        })
    }

    fn servers(&self) -> anyhow::Result<Option<Debuginfod>> {
        let by_variable =
            || std::env::var(ASKED).is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        let (servers, who) = match self.debuginfod.as_deref() {
            Some("") => (Debuginfod::from_env(), "--debuginfod"),
            Some(urls) => (
                Debuginfod::from_env_with(&urls.replace(',', " ")),
                "--debuginfod",
            ),
            None if by_variable() => (Debuginfod::from_env(), ASKED),
            None => return Ok(None),
        };
        servers.map(Some).with_context(|| {
            format!(
                "{who}: no server to ask, or no place to keep files; set DEBUGINFOD_URLS (and HOME), or give --debuginfod=https://SERVER"
            )
        })
    }
}
