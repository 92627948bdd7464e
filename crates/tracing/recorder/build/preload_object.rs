//! Checks the object that is preloaded into traced programs: it must leave the program alone.
//!
//! The object's code runs inside any function of the program, `malloc` and signal handlers included. So the object may
//! refer only to the symbols of other modules that a list names (`runtime/undefined-symbols.txt`); no allocator is
//! among them. And no function of the object may panic: the panic handler refers to [`PANIC_MARK`], a symbol that nobody
//! defines. Where nothing calls the handler the linker leaves it out, and the reference with it.
//!
//! The build script runs this check on the object that it has built; a test runs it on objects with defects.

use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::BTreeSet;
use std::fmt;

/// The undefined symbol that the panic handler refers to.
const PANIC_MARK: &str = "dioptra_can_panic";

/// A reason why an object must not be preloaded into programs.
#[derive(Debug, PartialEq, Eq)]
pub enum Defect {
    /// The object can't be read.
    Unreadable(String),
    /// The object refers to these symbols, which are not on the list.
    Undefined(Vec<String>),
    /// The panic handler is part of the object. These functions call it, or functions of `core` that do.
    Panics(Vec<String>),
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Unreadable(why) => write!(f, "the trace runtime can't be read: {why}"),
            Defect::Undefined(names) => write!(
                f,
                "the trace runtime refers to symbols that crates/tracing/runtime/undefined-symbols.txt does not allow: {}; \
                 its code runs inside any function of a traced program, an allocator's included",
                names.join(", ")
            ),
            Defect::Panics(names) => write!(
                f,
                "the trace runtime can panic, and would end the traced program; look for slices, divisions and `unwrap` in: {}",
                names.join(", ")
            ),
        }
    }
}

/// Returns the defects of an object, which may refer only to the symbols of a list.
pub fn defects(object: &[u8], list: &str) -> Vec<Defect> {
    let file = match object::File::parse(object) {
        Ok(file) => file,
        Err(error) => return vec![Defect::Unreadable(error.to_string())],
    };
    let undefined = undefined(&file);
    let allowed = allowed(list);
    let others: Vec<String> = undefined
        .iter()
        .filter(|name| **name != PANIC_MARK && !allowed.contains(*name))
        .map(|name| (*name).to_owned())
        .collect();
    let mut defects = Vec::new();
    if !others.is_empty() {
        defects.push(Defect::Undefined(others));
    }
    if undefined.contains(PANIC_MARK) && !allowed.contains(PANIC_MARK) {
        defects.push(Defect::Panics(panicking(&file)));
    }
    defects
}

/// Returns the names of a list: the first word of each line that is no comment.
fn allowed(list: &str) -> BTreeSet<&str> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// Returns the symbols that the dynamic linker must find in other modules.
fn undefined<'f>(file: &'f object::File<'_>) -> BTreeSet<&'f str> {
    let symbols = file.dynamic_symbols();
    let undefined = symbols.filter(|symbol| symbol.is_undefined());
    let names = undefined.filter_map(|symbol| symbol.name().ok());
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns the functions that call `core`'s panics, as the linker names them.
fn panicking(file: &object::File<'_>) -> Vec<String> {
    let is_panic = |name: &str| name.contains("4core9panicking") || name.contains("begin_unwind");
    let functions: Vec<(u64, u64, &str)> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?)))
        .collect();
    let panics: BTreeSet<u64> = functions
        .iter()
        .filter(|(_, _, name)| is_panic(name))
        .map(|(address, ..)| *address)
        .collect();
    let callers: BTreeSet<String> = functions
        .iter()
        .filter(|(_, _, name)| !is_panic(name))
        .filter(|(address, size, _)| {
            let code = code(file, *address, *size).unwrap_or_default();
            targets(file.architecture(), *address, code).any(|target| panics.contains(&target))
        })
        .map(|(_, _, name)| (*name).to_owned())
        .collect();
    callers.into_iter().collect()
}

/// Returns the bytes of a function.
fn code<'d>(file: &object::File<'d>, address: u64, size: u64) -> Option<&'d [u8]> {
    let mut sections = file.sections();
    sections.find_map(|section| section.data_range(address, size).ok()?)
}

/// Returns the addresses to which a function's direct calls and jumps may lead. On x86-64 an instruction may begin at
/// any byte.
fn targets(
    architecture: object::Architecture,
    address: u64,
    code: &[u8],
) -> Box<dyn Iterator<Item = u64> + '_> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, i32::from_le_bytes);
    if architecture == object::Architecture::Aarch64 {
        let words = (0..).step_by(4).zip(code.chunks_exact(4));
        return Box::new(words.filter_map(move |(at, bytes)| {
            // `b` and `bl`: 26 bits count instructions.
            let word = number(bytes);
            let is_branch = word.cast_unsigned() >> 26 & 0b1_1111 == 0b0_0101;
            let distance = i64::from(word << 6 >> 4);
            is_branch.then(|| (address + at).wrapping_add_signed(distance))
        }));
    }
    let branches = (0..).zip(code.windows(5));
    Box::new(branches.filter_map(move |(at, bytes)| {
        let is_branch = matches!(bytes[0], 0xe8 | 0xe9);
        let distance = i64::from(number(&bytes[1..]));
        is_branch.then(|| (address + at + 5_u64).wrapping_add_signed(distance))
    }))
}
