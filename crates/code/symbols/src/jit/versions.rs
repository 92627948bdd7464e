//! Functions at addresses from one time until another.

use std::collections::BTreeMap;

/// A function while it lay somewhere.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub start: u64,
    pub end: u64,
    /// Its time: from this until, exclusively, that.
    pub from: u64,
    until: u64,
    /// Where its code lies in the file that tells of it; zero where it doesn't hold code.
    pub code: u64,
    /// Where the name lies among the names.
    name: (usize, u32),
    /// Where its lines lie among the lines.
    lines: (usize, usize),
}

/// The properties of a function that stay the same while it moves.
struct Details {
    code: u64,
    name: (usize, u32),
    lines: (usize, usize),
}

/// A line that starts at an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Distance from the function's start.
    pub offset: u64,
    pub line: u32,
    /// Index of the file.
    pub file: usize,
}

/// Functions over time. Add in the order of time, then [`finish`](Self::finish), then ask.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// After `finish` sorted by start.
    all: Vec<Version>,
    /// For each version the largest end up to it, which bounds the search.
    reach: Vec<u64>,
    /// Indices by where the code lies in the file.
    by_code: Vec<usize>,
    names: String,
    lines: Vec<Line>,
    files: Vec<String>,
    /// The functions that exist now, by start; none overlaps another.
    live: BTreeMap<u64, usize>,
}

impl Versions {
    /// A function appears, over what was there; `code` is where its code lies in the file.
    pub(super) fn load(&mut self, start: u64, size: u64, code: u64, time: u64, name: &str) {
        self.put(start, size, time, |versions| {
            let at = versions.names.len();
            versions.names.push_str(name);
            Details {
                code,
                // Names come from records and lines that are far shorter than 4 GiB.
                name: (at, u32::try_from(name.len()).unwrap_or(0)),
                lines: (0, 0),
            }
        });
    }

    /// The function that starts at an address moves to another.
    pub(super) fn relocate(&mut self, from: u64, to: u64, size: u64, time: u64) {
        let Some(&index) = self.live.get(&from) else {
            return;
        };
        let old = &mut self.all[index];
        old.until = time;
        let details = Details {
            code: old.code,
            name: old.name,
            lines: old.lines,
        };
        self.live.remove(&from);
        self.put(to, size, time, |_| details);
    }

    /// Gives lines, sorted, to the function that was loaded last at an address.
    pub(super) fn add_lines(&mut self, start: u64, lines: impl IntoIterator<Item = Line>) {
        if let Some(&index) = self.live.get(&start) {
            let from = self.lines.len();
            self.lines.extend(lines);
            self.all[index].lines = (from, self.lines.len());
        }
    }

    /// The index of a file's name; the same one for the same name in a row.
    pub(super) fn file(&mut self, name: &str) -> usize {
        if self.files.last().is_none_or(|last| last != name) {
            self.files.push(name.to_owned());
        }
        self.files.len() - 1
    }

    fn put(
        &mut self,
        start: u64,
        size: u64,
        time: u64,
        details: impl FnOnce(&mut Self) -> Details,
    ) {
        let Some(end) = start.checked_add(size).filter(|&end| end > start) else {
            return;
        };
        // A function that overlaps starts below the end. Of those that start below the start, only the last can reach in.
        while let Some((&other, &index)) = self.live.range(..end).next_back() {
            if self.all[index].end <= start {
                break;
            }
            self.all[index].until = time;
            self.live.remove(&other);
        }
        let Details { code, name, lines } = details(self);
        self.live.insert(start, self.all.len());
        self.all.push(Version {
            start,
            end,
            from: time,
            until: u64::MAX,
            code,
            name,
            lines,
        });
    }

    /// Ends the collection.
    pub(super) fn finish(&mut self) {
        self.live = BTreeMap::new();
        // Replaced at once: never there.
        self.all.retain(|version| version.from < version.until);
        self.all
            .sort_by_key(|version| (version.start, version.from));
        self.reach = self
            .all
            .iter()
            .scan(0, |reach, version| {
                *reach = version.end.max(*reach);
                Some(*reach)
            })
            .collect();
        self.by_code = (0..self.all.len()).collect();
        self.by_code.sort_by_key(|&index| self.all[index].code);
    }

    /// All versions, by where they start.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Version> {
        self.all.iter()
    }

    /// A version of the function whose code holds a place in the file.
    pub(super) fn find_code(&self, offset: u64) -> Option<&Version> {
        let after = self
            .by_code
            .partition_point(|&index| self.all[index].code <= offset);
        let version = &self.all[self.by_code[after.checked_sub(1)?]];
        (offset - version.code < version.end - version.start).then_some(version)
    }

    /// The version that covers an address at a time; without a time, the last that did.
    pub(super) fn find(&self, address: u64, time: Option<u64>) -> Option<&Version> {
        let mut found: Option<&Version> = None;
        let last = self.all.partition_point(|version| version.start <= address);
        for (version, &reach) in self.all[..last].iter().zip(&self.reach).rev() {
            if reach <= address {
                break;
            }
            if address >= version.end {
                continue;
            }
            match time {
                Some(time) if (version.from..version.until).contains(&time) => {
                    return Some(version);
                }
                Some(_) => {}
                None if found.is_none_or(|found| found.until < version.until) => {
                    found = Some(version);
                }
                None => {}
            }
        }
        found
    }

    pub(super) fn name(&self, version: &Version) -> &str {
        let (at, len) = version.name;
        self.names.get(at..at + len as usize).unwrap_or_default()
    }

    pub(super) fn line(&self, version: &Version, address: u64) -> Option<(&str, u32)> {
        let (from, to) = version.lines;
        let lines = self.lines.get(from..to)?;
        let inside = address - version.start;
        let at = lines.partition_point(|line| line.offset <= inside);
        let line = lines.get(at.checked_sub(1)?)?;
        Some((self.files.get(line.file)?, line.line))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_replaces_code() {
        let mut versions = Versions::default();
        versions.load(100, 50, 0, 10, "a");
        versions.load(150, 50, 0, 11, "b");
        versions.load(140, 20, 0, 20, "c");
        versions.relocate(140, 300, 20, 30);
        versions.load(300, 20, 0, 30, "d");
        versions.finish();
        let name = |address, time| {
            versions
                .find(address, time)
                .map(|found| versions.name(found))
        };
        assert_eq!(name(100, Some(9)), None);
        assert_eq!(name(149, Some(10)), Some("a"));
        assert_eq!(name(150, Some(10)), None);
        assert_eq!(name(150, Some(11)), Some("b"));
        assert_eq!(name(150, Some(25)), Some("c"));
        // Gone, since some of it was overwritten.
        assert_eq!(name(199, Some(25)), None);
        assert_eq!(name(199, None), Some("b"));
        assert_eq!(name(150, Some(30)), None);
        assert_eq!(name(310, Some(30)), Some("d"));
        assert_eq!(versions.len(), 4);
    }
}
