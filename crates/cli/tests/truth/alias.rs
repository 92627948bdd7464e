//! Which names stand at one address, told by `nm` and the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The symbols of the modules of one recording, read when first asked for.
pub struct Aliases {
    paths: BTreeMap<String, PathBuf>,
    modules: BTreeMap<String, Symbols>,
}

/// Where each name of a module stands.
#[derive(Default)]
struct Symbols(BTreeMap<String, BTreeSet<u64>>);

impl Aliases {
    pub fn new(paths: BTreeMap<String, PathBuf>) -> Self {
        Aliases {
            paths,
            modules: BTreeMap::new(),
        }
    }

    fn symbols(&mut self, module: &str) -> &Symbols {
        let paths = &self.paths;
        self.modules
            .entry(module.to_owned())
            .or_insert_with(|| Symbols::read(module, paths.get(module)))
    }

    /// Whether two names of a module share an address.
    pub fn same_place(&mut self, module: &str, one: &str, other: &str) -> bool {
        let places = &self.symbols(module).0;
        match (places.get(one), places.get(other)) {
            (Some(one), Some(other)) => !one.is_disjoint(other),
            _ => false,
        }
    }
}

impl Symbols {
    fn read(module: &str, path: Option<&PathBuf>) -> Symbols {
        let mut symbols = Symbols::default();
        if module.starts_with('[') {
            symbols.add(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default());
        } else if let Some(path) = path {
            symbols.add(&nm(path, &["-D"]));
            symbols.add(&nm(path, &[]));
            if let Some(debug) = debug_file(path) {
                symbols.add(&nm(&debug, &[]));
            }
        }
        symbols
    }

    /// Adds lines of `ADDRESS TYPE NAME`. A name counts with and without its version (`open64@@GLIBC_2.2.5`).
    fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            let plain = name.split('@').next().unwrap_or(name);
            for name in [name, plain] {
                self.0.entry(name.to_owned()).or_default().insert(address);
            }
        }
    }
}

fn nm(path: &Path, options: &[&str]) -> String {
    let output = Command::new("nm")
        .arg("--defined-only")
        .args(options)
        .arg(path)
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// The separate debug file of a module by its build id, which `readelf` tells.
fn debug_file(path: &Path) -> Option<PathBuf> {
    let output = Command::new("readelf").arg("-n").arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let id = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))?;
    let file = format!(
        "/usr/lib/debug/.build-id/{}/{}.debug",
        id.get(..2)?,
        id.get(2..)?
    );
    Some(PathBuf::from(file)).filter(|file| file.exists())
}
