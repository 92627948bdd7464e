//! Other people's answers: what perf calls an address, and what binutils say of a file.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use dioptra_testprograms::output_of;
use dioptra_testprograms::skip;

/// Compiles a C program; nothing when there is no compiler.
#[track_caller]
pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (input, output) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&input, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(&output).arg(&input).args(flags);
    output_of(&mut gcc).map(|_| output)
}

/// A recording made by perf, in which the samples are replaced by ones of our choice: perf then
/// tells its name for any address, not only for those that happened to be hot.
pub struct Recording {
    dir: tempfile::TempDir,
    /// Header and attributes, features cleared.
    head: Vec<u8>,
    /// All records but samples and exits.
    records: Vec<u8>,
    /// The model for new samples.
    sample: Vec<u8>,
    /// Where the instruction pointer lies in it.
    ip_at: usize,
    /// Executable mappings: start, length, file offset, path.
    pub mappings: Vec<(u64, u64, u64, String)>,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Recording {
    /// Records a command with perf; nothing when perf can't.
    #[track_caller]
    pub fn of(command: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("perf.data");
        let mut perf = Command::new("perf");
        perf.args([
            "record",
            "-q",
            "-N",
            "-B",
            "-e",
            "cpu-clock",
            "-c",
            "200000",
            "-o",
        ])
        .arg(&file);
        perf.arg("--").args(command).env("HOME", dir.path());
        output_of(&mut perf)?;
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(&bytes[..8], b"PERFILE2");
        let (attributes, data, data_len) =
            (u64_at(&bytes, 24), u64_at(&bytes, 40), u64_at(&bytes, 48));
        let sample_type = u64_at(&bytes, attributes as usize + 24);
        let mut head = bytes[..data as usize].to_vec();
        head[72..104].fill(0);
        let mut this = Self {
            dir,
            head,
            records: Vec::new(),
            sample: Vec::new(),
            ip_at: if sample_type & 1 << 16 == 0 { 8 } else { 16 },
            mappings: Vec::new(),
        };
        let mut rest = &bytes[data as usize..(data + data_len) as usize];
        while rest.len() >= 8 {
            let kind = u32::from_le_bytes(rest[..4].try_into().unwrap());
            let len = usize::from(u16::from_le_bytes([rest[6], rest[7]]));
            let (record, after) = rest.split_at(len);
            rest = after;
            match kind {
                9 => this.sample = record.to_vec(),
                4 | 68 => {}
                _ => {
                    if kind == 10 && record[64] & 4 != 0 {
                        let name = record[72..].split(|&byte| byte == 0).next().unwrap();
                        this.mappings.push((
                            u64_at(record, 16),
                            u64_at(record, 24),
                            u64_at(record, 32),
                            String::from_utf8_lossy(name).into_owned(),
                        ));
                    }
                    this.records.extend_from_slice(record);
                }
            }
        }
        if this.sample.is_empty() {
            skip(format!("perf took no sample of {command:?}"));
            return None;
        }
        Some(this)
    }

    /// The address at which a file offset of a module was mapped.
    pub fn address(&self, module: &str, offset: u64) -> Option<u64> {
        let mappings = self.mappings.iter().rev();
        mappings
            .filter(|(.., name)| name == module)
            .find_map(|&(start, len, file_offset, _)| {
                let inside = offset.checked_sub(file_offset)?;
                (inside < len).then_some(start + inside)
            })
    }

    /// perf's names for addresses; one that has no name is missing from the result.
    pub fn perf_names(&self, addresses: &[u64]) -> Option<HashMap<u64, String>> {
        let mut bytes = self.head.clone();
        let mut data = self.records.clone();
        for (order, &address) in addresses.iter().enumerate() {
            let mut sample = self.sample.clone();
            let cpu_mode: u8 = if address >> 63 == 1 { 1 } else { 2 };
            sample[4] = sample[4] & !7 | cpu_mode;
            sample[self.ip_at..self.ip_at + 8].copy_from_slice(&address.to_le_bytes());
            // Process and thread lie between the instruction pointer and the time.
            let time = u64_at(&sample, self.ip_at + 16) + order as u64;
            sample[self.ip_at + 16..self.ip_at + 24].copy_from_slice(&time.to_le_bytes());
            data.extend_from_slice(&sample);
        }
        bytes[48..56].copy_from_slice(&(data.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&data);
        let file = self.dir.path().join("asked.data");
        std::fs::write(&file, bytes).unwrap();
        let cache = self.dir.path().join("no-cache");
        let mut perf = Command::new("perf");
        perf.arg("--buildid-dir")
            .arg(&cache)
            .env("HOME", self.dir.path());
        perf.args(["script", "-F", "ip,sym", "--no-demangle", "-i"])
            .arg(&file);
        let text = output_of(&mut perf)?;
        let mut names = HashMap::new();
        for line in text.lines() {
            let Some((address, name)) = line.trim().split_once(' ') else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap();
            if name != "[unknown]" {
                names.insert(address, name.to_owned());
            }
        }
        assert!(!text.is_empty(), "perf script printed nothing");
        Some(names)
    }
}

/// A name without its version: `.dynsym` holds `exp2`, which readelf and `.symtab` show as
/// `exp2@GLIBC_2.2.5`.
pub fn unversioned(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The symbols of some files (a program and its debug file) according to readelf.
#[derive(Default)]
pub struct Truth {
    /// Addresses of a name without its version.
    addresses: HashMap<String, HashSet<u64>>,
    sizeless: HashSet<String>,
}

impl Truth {
    /// Asks readelf; nothing when it can't answer.
    pub fn of(files: &[PathBuf]) -> Option<Self> {
        let mut this = Self::default();
        for file in files {
            let text = output_of(Command::new("readelf").args(["-sW"]).arg(file))?;
            for line in text.lines() {
                // `   12: 0000000000001139    22 FUNC    GLOBAL DEFAULT   14 main`
                let fields: Vec<&str> = line.split_whitespace().collect();
                let [_, value, size, _, _, _, index, name, ..] = fields[..] else {
                    continue;
                };
                let Ok(value) = u64::from_str_radix(value, 16) else {
                    continue;
                };
                if index == "UND" {
                    continue;
                }
                this.addresses
                    .entry(unversioned(name).to_owned())
                    .or_default()
                    .insert(value);
                if size == "0" {
                    this.sizeless.insert(name.to_owned());
                }
            }
        }
        Some(this)
    }

    /// Whether two names are aliases.
    pub fn same_address(&self, one: &str, other: &str) -> bool {
        match (
            self.addresses.get(unversioned(one)),
            self.addresses.get(unversioned(other)),
        ) {
            (Some(one), Some(other)) => !one.is_disjoint(other),
            _ => false,
        }
    }

    /// Whether a symbol of this name has no size.
    pub fn has_no_size(&self, name: &str) -> bool {
        self.sizeless.contains(name)
    }
}
