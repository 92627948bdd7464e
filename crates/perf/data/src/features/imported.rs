//! The section of imported names: the functions and lines of locations whose names came with the profile of another
//! tool.
//!
//! All numbers are LEB128, so the section is the same in either byte order:
//!
//! ```text
//! version=1  format  texts: count (length bytes)…
//! functions: count (name link_name)…                    both are indices of texts
//! modules:   count (path  locations: count (address-distance role  frames: count (function file+1|0 line|0)…)…)…
//! ```
//!
//! The locations of a module are in the order of their addresses; each address is written as the distance from the one
//! before it. The innermost frame of a location comes first.

use super::parse::SectionDamage;
use std::collections::HashMap;
use std::sync::Arc;

/// The version of the layout.
const VERSION: u64 = 1;

/// The names of locations in a recording that was made from another tool's profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedNames {
    /// The format of the profile, such as `pprof`.
    pub format: String,
    /// The functions.
    pub functions: Vec<ImportedFunction>,
    /// The modules whose locations have names.
    pub modules: Vec<ImportedModule>,
}

/// A function of an imported profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImportedFunction {
    /// The name.
    pub name: Arc<str>,
    /// The name as the linker knows it, or the name again.
    pub link_name: Arc<str>,
}

/// A module of an imported profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedModule {
    /// The name of the module's mappings.
    pub path: String,
    /// The locations, ordered by address and role.
    locations: Vec<Location>,
    frames: Vec<ImportedFrame>,
}

/// The role of a location in a stack, since other functions may be inlined where it calls than where it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ImportedRole {
    /// A sample was taken at the location.
    Executes,
    /// The location is a caller's.
    Calls,
}

/// A function at a location, with its line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImportedFrame {
    /// The index in [`ImportedNames::functions`].
    pub function: u32,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Location {
    address: u64,
    role: ImportedRole,
    /// The first frame, and the number of frames.
    start: u32,
    count: u32,
}

impl ImportedNames {
    /// Returns the module with this path.
    pub fn module(&self, path: &[u8]) -> Option<&ImportedModule> {
        let mut modules = self.modules.iter();
        modules.find(|module| module.path.as_bytes() == path)
    }
}

impl ImportedModule {
    /// Makes a module without locations.
    pub fn new(path: String) -> ImportedModule {
        ImportedModule {
            path,
            ..ImportedModule::default()
        }
    }

    /// Adds the functions at an address relative to the module, innermost first. A second list for the same address and
    /// role is ignored.
    pub fn add(&mut self, address: u64, role: ImportedRole, frames: &[ImportedFrame]) {
        let start = self.frames.len();
        let end = start + frames.len();
        // So many frames do not fit in memory.
        let (Ok(start), Ok(_)) = (u32::try_from(start), u32::try_from(end)) else {
            return;
        };
        self.frames.extend_from_slice(frames);
        self.locations.push(Location {
            address,
            role,
            start,
            count: frames.len() as u32,
        });
    }

    /// Adds the locations of another module.
    pub fn append(&mut self, other: ImportedModule) {
        for location in &other.locations {
            let frames = &other.frames[location.start as usize..][..location.count as usize];
            self.add(location.address, location.role, frames);
        }
    }

    /// Orders the locations, so that they can be found.
    pub fn sort(&mut self) {
        // The list that was added first comes first, and stays.
        self.locations.sort_unstable();
        self.locations
            .dedup_by_key(|location| (location.address, location.role));
    }

    /// Returns the functions at a relative address in a role, innermost first. Where the address is known in the other
    /// role only, these are returned. `None` for an address without names. Needs [`ImportedModule::sort`] after the
    /// last addition.
    pub fn frames(&self, address: u64, role: ImportedRole) -> Option<&[ImportedFrame]> {
        let from = self
            .locations
            .partition_point(|location| location.address < address);
        let mut at = self.locations[from..]
            .iter()
            .take_while(|location| location.address == address);
        let first = at.next()?;
        let wanted = match first.role == role {
            true => first,
            false => at.next().unwrap_or(first),
        };
        Some(&self.frames[wanted.start as usize..][..wanted.count as usize])
    }

    /// Returns the number of locations.
    pub fn len(&self) -> usize {
        self.locations.len()
    }

    /// Returns whether no location has a name.
    pub fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }
}

/// Writes the section.
pub(crate) fn encode(names: &ImportedNames) -> Vec<u8> {
    let mut texts: Vec<&str> = Vec::new();
    let mut ids: HashMap<&str, u64> = HashMap::new();
    let mut id = |text| {
        *ids.entry(text).or_insert_with(|| {
            texts.push(text);
            texts.len() as u64 - 1
        })
    };
    let mut rest = Vec::new();
    number(&mut rest, names.functions.len() as u64);
    for function in &names.functions {
        number(&mut rest, id(&function.name));
        number(&mut rest, id(&function.link_name));
    }
    number(&mut rest, names.modules.len() as u64);
    for module in &names.modules {
        number(&mut rest, id(&module.path));
        number(&mut rest, module.locations.len() as u64);
        let mut last = 0;
        for location in &module.locations {
            number(&mut rest, location.address.wrapping_sub(last));
            last = location.address;
            number(&mut rest, u64::from(location.role == ImportedRole::Calls));
            number(&mut rest, u64::from(location.count));
            let frames = &module.frames[location.start as usize..][..location.count as usize];
            for frame in frames {
                number(&mut rest, u64::from(frame.function));
                let file = frame.file.as_deref().map_or(0, |file| id(file) + 1);
                number(&mut rest, file);
                number(&mut rest, u64::from(frame.line.unwrap_or(0)));
            }
        }
    }
    let mut bytes = Vec::with_capacity(rest.len() * 2);
    number(&mut bytes, VERSION);
    text(&mut bytes, &names.format);
    number(&mut bytes, texts.len() as u64);
    for one in texts {
        text(&mut bytes, one);
    }
    bytes.extend(rest);
    bytes
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads the section.
pub(super) fn decode(bytes: &[u8]) -> Result<ImportedNames, SectionDamage> {
    let mut reader = Reader { bytes, at: 0 };
    let read = reader.names();
    read.ok_or_else(|| SectionDamage {
        at: reader.at as u64,
        why: "the section of imported names is not as its version says".to_owned(),
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            self.at += 1;
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number of things that have at least one byte each.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.bytes.len() - self.at).then_some(count)
    }

    fn text(&mut self) -> Option<&str> {
        let length = self.count()?;
        let text = std::str::from_utf8(&self.bytes[self.at..][..length]).ok()?;
        self.at += length;
        Some(text)
    }

    fn names(&mut self) -> Option<ImportedNames> {
        if self.number()? != VERSION {
            return None;
        }
        let format = self.text()?.to_owned();
        let mut texts: Vec<Arc<str>> = Vec::new();
        for _ in 0..self.count()? {
            texts.push(self.text()?.into());
        }
        let text = |index: u64| texts.get(usize::try_from(index).ok()?).cloned();
        let mut functions = Vec::new();
        for _ in 0..self.count()? {
            functions.push(ImportedFunction {
                name: text(self.number()?)?,
                link_name: text(self.number()?)?,
            });
        }
        let mut modules = Vec::new();
        for _ in 0..self.count()? {
            let mut module = ImportedModule::new(text(self.number()?)?.to_string());
            let mut address = 0_u64;
            let mut frames = Vec::new();
            for _ in 0..self.count()? {
                address = address.wrapping_add(self.number()?);
                let role = match self.number()? {
                    0 => ImportedRole::Executes,
                    1 => ImportedRole::Calls,
                    _ => return None,
                };
                frames.clear();
                for _ in 0..self.count()? {
                    let function = u32::try_from(self.number()?).ok()?;
                    functions.get(function as usize)?;
                    let file = match self.number()? {
                        0 => None,
                        index => Some(text(index - 1)?),
                    };
                    let line = u32::try_from(self.number()?).ok()?;
                    frames.push(ImportedFrame {
                        function,
                        file,
                        line: (line > 0).then_some(line),
                    });
                }
                if frames.is_empty() {
                    return None;
                }
                module.add(address, role, &frames);
            }
            module.sort();
            modules.push(module);
        }
        // Zeros may follow, in a pipe.
        let padding = &self.bytes[self.at..];
        let is_padding = padding.len() < 8 && padding.iter().all(|byte| *byte == 0);
        is_padding.then_some(ImportedNames {
            format,
            functions,
            modules,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> ImportedNames {
        let function = |name: &str| ImportedFunction {
            name: name.into(),
            link_name: format!("_Z{name}").into(),
        };
        let frame = |function, line| ImportedFrame {
            function,
            file: (line > 0).then(|| "a.c".into()),
            line: (line > 0).then_some(line),
        };
        let mut one = ImportedModule::new("/bin/one".into());
        one.add(u64::MAX, ImportedRole::Executes, &[frame(0, 0)]);
        one.add(5, ImportedRole::Calls, &[frame(1, 7), frame(0, 300)]);
        one.add(5, ImportedRole::Executes, &[frame(0, 9)]);
        one.sort();
        ImportedNames {
            format: "pprof".into(),
            functions: vec![function("main"), function("ünlined")],
            modules: vec![one, ImportedModule::new("[imported]".into())],
        }
    }

    #[test]
    fn the_written_names_are_read() {
        let names = names();
        let bytes = encode(&names);
        let read = decode(&bytes).unwrap();
        assert_eq!(encode(&read), bytes);
        assert_eq!(decode(&[&bytes[..], &[0; 7]].concat()).unwrap(), read);
        for names in [names, read] {
            check(&names);
        }
    }

    fn check(names: &ImportedNames) {
        assert_eq!((names.functions.len(), names.modules.len()), (2, 2));
        let module = names.module(b"/bin/one").unwrap();
        let lines = |address, role| -> Option<Vec<Option<u32>>> {
            let frames = module.frames(address, role)?;
            Some(frames.iter().map(|frame| frame.line).collect())
        };
        let (executes, calls) = (ImportedRole::Executes, ImportedRole::Calls);
        assert_eq!(lines(5, executes), Some(vec![Some(9)]));
        assert_eq!(lines(5, calls), Some(vec![Some(7), Some(300)]));
        assert_eq!(lines(u64::MAX, calls), Some(vec![None]));
        assert_eq!(lines(6, calls), None);
    }

    #[test]
    fn damage_is_told_and_never_panics() {
        let bytes = encode(&names());
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                if let Ok(names) = decode(&damaged) {
                    assert!(names.functions.len() <= damaged.len());
                }
            }
        }
        // A count that the section cannot hold is no reason to allocate.
        let mut huge = vec![1, 0];
        number(&mut huge, u64::MAX);
        assert!(decode(&huge).is_err());
    }
}
