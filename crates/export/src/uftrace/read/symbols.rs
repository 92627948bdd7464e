//! Files of symbols.

use super::super::loss::{Losses, UftraceLossKind};
use super::entries;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A function of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The first address, relative to the module.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// True for an entry of a linkage table: a call of another module's function.
    pub is_library_call: bool,
    /// The name in the module's symbol table.
    pub name: String,
}

/// The files of symbols of a directory, by the paths of their modules, and by their own names.
#[derive(Debug, Default)]
pub(super) struct SymbolFiles {
    by_path: BTreeMap<String, PathBuf>,
    by_name: BTreeMap<String, PathBuf>,
}

/// The largest size in bytes of a line that is read.
const LONGEST: u64 = 1 << 16;

impl SymbolFiles {
    /// Finds the files.
    pub fn new(folder: &Path) -> SymbolFiles {
        let mut files = SymbolFiles::default();
        for (name, path) in entries(folder).unwrap_or_default() {
            let Some(module) = name.strip_suffix(".sym") else {
                continue;
            };
            match path_of(&path) {
                Some(of) => _ = files.by_path.insert(of, path),
                // Older files do not name their modules.
                None => _ = files.by_name.insert(module.to_owned(), path),
            }
        }
        files
    }

    /// Returns the functions of a module in the order of their addresses.
    pub fn of(&self, module: &str, losses: &mut Losses) -> Vec<Symbol> {
        let name = module.rsplit('/').next().unwrap_or(module);
        let Some(path) = self.by_path.get(module).or_else(|| self.by_name.get(name)) else {
            return Vec::new();
        };
        match std::fs::read(path) {
            Ok(bytes) => parse(&String::from_utf8_lossy(&bytes), losses),
            Err(_) => {
                losses.add(UftraceLossKind::Lines);
                Vec::new()
            }
        }
    }
}

/// Returns the path of the module that a file of symbols names in its first lines.
fn path_of(file: &Path) -> Option<String> {
    let mut reader = BufReader::new(File::open(file).ok()?);
    for _ in 0..4 {
        let mut line = Vec::new();
        (&mut reader)
            .take(LONGEST)
            .read_until(b'\n', &mut line)
            .ok()?;
        let line = String::from_utf8_lossy(&line);
        if let Some(path) = line.strip_prefix("# path name: ") {
            return Some(path.trim_end().to_owned());
        }
    }
    None
}

/// Parses lines `ADDRESS [SIZE] TYPE NAME`, all numbers hexadecimal.
fn parse(text: &str, losses: &mut Losses) -> Vec<Symbol> {
    let mut all: Vec<(u64, Option<u64>, char, &str)> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        match symbol(line) {
            Some(symbol) => all.push(symbol),
            None => losses.add(UftraceLossKind::Lines),
        }
    }
    all.sort_by_key(|(start, ..)| *start);
    let mut symbols: Vec<Symbol> = Vec::new();
    for (place, (start, size, kind, name)) in all.iter().enumerate() {
        if !matches!(kind, 'T' | 't' | 'w' | 'W' | 'P' | 'i') {
            continue;
        }
        let later = all.get(place + 1..).unwrap_or_default();
        let next = later
            .iter()
            .map(|(next, ..)| *next)
            .find(|next| next > start);
        let end = size.and_then(|size| start.checked_add(size));
        let end = end.filter(|end| end > start).or(next);
        if symbols.last().is_some_and(|last| last.start == *start) {
            continue;
        }
        symbols.push(Symbol {
            start: *start,
            end: end.unwrap_or(u64::MAX),
            is_library_call: *kind == 'P',
            name: (*name).to_owned(),
        });
    }
    symbols
}

fn symbol(line: &str) -> Option<(u64, Option<u64>, char, &str)> {
    let (start, rest) = line.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let (word, rest) = rest.split_once(' ')?;
    let (size, kind, name) = match word.len() {
        1 => (None, word, rest),
        _ => {
            let (kind, name) = rest.split_once(' ')?;
            (Some(u64::from_str_radix(word, 16).ok()?), kind, name)
        }
    };
    let mut letters = kind.chars();
    let kind = letters.next()?;
    let is_whole = letters.next().is_none() && !name.is_empty();
    is_whole.then_some((start, size, kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_end_where_the_next_one_begins() {
        let mut losses = Losses::default();
        let text = "# symbols: 4\n0000000000001040 P getpid\n00000000000010a0 ? __dynsym_end\n\
                    00000000000011f9 T c\n0000000000001217 00000010 t b with blanks\nwrong\n";
        let symbols = parse(text, &mut losses);
        let shown: Vec<_> = symbols
            .iter()
            .map(|s| (s.start, s.end, s.name.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (0x1040, 0x10a0, "getpid"),
                (0x11f9, 0x1217, "c"),
                (0x1217, 0x1227, "b with blanks")
            ]
        );
        assert!(symbols[0].is_library_call && !symbols[1].is_library_call);
        assert_eq!(losses.list()[0].count, 1);
    }
}
