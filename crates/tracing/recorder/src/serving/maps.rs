//! The memory mappings of a traced process.

use crate::processor::Native;
use dioptra_trace_patch::Arch;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Returns the size of a page in bytes, which is the same in all processes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct Area {
    /// The first address.
    pub start: u64,
    /// The first address behind the area.
    pub end: u64,
    /// The `PROT_*` bits.
    pub protection: u8,
    /// The offset in the file.
    pub offset: u64,
    /// The file's device and inode, as the kernel prints them.
    pub file: (String, u64),
    /// The file's path; empty for other memory.
    pub path: Vec<u8>,
}

/// All memory of a process, by address.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// The areas, one for each line.
    pub areas: Vec<Area>,
}

/// A file of which a process has mapped code.
#[derive(Clone, Debug)]
pub struct MappedModule {
    /// Its path, as the process sees it.
    pub path: PathBuf,
    /// Its device and inode.
    pub file: (String, u64),
    /// Its areas, by address.
    pub areas: Vec<Area>,
}

impl Maps {
    /// Reads the mappings of a process.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn read(pid: u32) -> io::Result<Maps> {
        let text = fs::read(format!("/proc/{pid}/maps"))?;
        let areas = text
            .split(|&byte| byte == b'\n')
            .filter_map(parse)
            .collect();
        Ok(Maps { areas })
    }

    /// Returns the modules with code, by their first address.
    pub fn modules(&self) -> Vec<MappedModule> {
        let mut modules: BTreeMap<u64, MappedModule> = BTreeMap::new();
        let mut last: Option<(u64, &Area)> = None;
        for area in &self.areas {
            if !area.path.starts_with(b"/") {
                continue;
            }
            // A module's segments follow each other; a second mapping of the file begins with its head again.
            match last {
                Some((first, before))
                    if before.file == area.file && area.offset >= before.offset =>
                {
                    if let Some(module) = modules.get_mut(&first) {
                        module.areas.push(area.clone());
                    }
                    last = Some((first, area));
                }
                _ => {
                    let path = std::ffi::OsString::from_vec(area.path.clone());
                    modules.insert(
                        area.start,
                        MappedModule {
                            path: path.into(),
                            file: area.file.clone(),
                            areas: vec![area.clone()],
                        },
                    );
                    last = Some((area.start, area));
                }
            }
        }
        modules
            .into_values()
            .filter(|module| {
                module
                    .areas
                    .iter()
                    .any(|area| area.protection & libc::PROT_EXEC as u8 != 0)
            })
            .collect()
    }

    /// Returns a free place of `size` bytes within reach of the addresses from `start` to `end`.
    ///
    /// Prefers places below them to places above, where a program's heap grows, and keeps a little away.
    pub fn room_near(&self, start: u64, end: u64, size: u64) -> Option<u64> {
        const LOWEST: u64 = 0x1_0000;
        const DISTANCES: [u64; 7] = [
            0x10_0000,
            0x1000,
            0x100_0000,
            0x1000_0000,
            0x3000_0000,
            0x4000_0000,
            0x6000_0000,
        ];
        let page = page_size();
        let is_near = |at: u64| {
            at >= LOWEST
                && at + size < Native::HIGHEST
                && end.max(at + size) - start.min(at) < Native::REACH
        };
        let is_free = |at: u64| {
            is_near(at)
                && !self
                    .areas
                    .iter()
                    .any(|area| area.start < at + size + page && at < area.end + page)
        };
        let below = DISTANCES
            .iter()
            .filter_map(|distance| start.checked_sub(distance + size));
        let above = DISTANCES.iter().rev().map(|distance| end + distance);
        below
            .chain(above)
            .map(|at| at & !(page - 1))
            .find(|&at| is_free(at))
            .or_else(|| {
                // All of these may be taken where many modules were loaded. Then any gap will do, the nearest first.
                let mut gaps = self.gaps_for(size + 2 * page);
                gaps.retain(|gap| is_near(gap + page));
                let nearest = gaps.into_iter().min_by_key(|gap| gap.abs_diff(start));
                nearest.map(|gap| gap + page)
            })
    }

    /// Returns the highest place of so many bytes in each gap between the areas.
    fn gaps_for(&self, size: u64) -> Vec<u64> {
        let mut areas: Vec<(u64, u64)> = self
            .areas
            .iter()
            .map(|area| (area.start, area.end))
            .collect();
        areas.sort_unstable();
        let mut behind = 0;
        let mut gaps = Vec::new();
        for (start, end) in areas {
            if let Some(gap) = start.checked_sub(size).filter(|gap| *gap >= behind) {
                gaps.push(gap);
            }
            behind = behind.max(end);
        }
        gaps
    }

    /// Marks a place as taken.
    pub fn take(&mut self, start: u64, size: u64) {
        self.areas.push(Area {
            start,
            end: start + size,
            protection: 0,
            offset: 0,
            file: (String::new(), 0),
            path: Vec::new(),
        });
    }

    /// Returns the protection of the memory at an address.
    pub fn protection(&self, address: u64) -> Option<u8> {
        self.areas
            .iter()
            .find(|area| area.start <= address && address < area.end)
            .map(|area| area.protection)
    }
}

fn parse(line: &[u8]) -> Option<Area> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (start, end) = word()?.split_once('-')?;
    let flags = word()?;
    let offset = u64::from_str_radix(word()?, 16).ok()?;
    let device = word()?.to_owned();
    let inode = word()?.parse().ok()?;
    let protection = [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC]
        .iter()
        .zip(flags.bytes())
        .filter(|(_, flag)| *flag != b'-')
        .fold(0, |all, (bit, _)| all | *bit as u8);
    let path = words.next().unwrap_or_default().trim_ascii_start();
    Some(Area {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection,
        offset,
        file: (device, inode),
        path: path.to_vec(),
    })
}

impl MappedModule {
    /// Returns its first address and the first one behind it.
    pub fn range(&self) -> (u64, u64) {
        let start = self.areas.first().map_or(0, |area| area.start);
        let end = self.areas.last().map_or(0, |area| area.end);
        (start, end)
    }

    /// Returns the offset in its file of an address.
    pub fn offset(&self, address: u64) -> Option<u64> {
        let mut areas = self.areas.iter();
        let area = areas.find(|area| area.start <= address && address < area.end)?;
        Some(address - area.start + area.offset)
    }

    /// Returns the load bias: the address in memory minus the address in the ELF file. `segments` are the offsets and
    /// addresses of the file's segments.
    pub fn bias(&self, segments: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
        let page = page_size();
        for (offset, address) in segments {
            let area = self
                .areas
                .iter()
                .find(|area| area.offset == offset & !(page - 1));
            if let Some(area) = area {
                return Some(area.start.wrapping_sub(address & !(page - 1)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_maps_hold_our_code() {
        let maps = Maps::read(std::process::id()).unwrap();
        let here = our_own_maps_hold_our_code as *const () as u64;
        let modules = maps.modules();
        let module = modules
            .iter()
            .find(|module| (module.range().0..module.range().1).contains(&here))
            .unwrap();
        assert_eq!(module.path, std::env::current_exe().unwrap());
        assert!(maps.protection(here).unwrap() & libc::PROT_EXEC as u8 != 0);
        let (start, end) = module.range();
        let place = maps.room_near(start, end, 1 << 20).unwrap();
        assert!(
            maps.areas
                .iter()
                .all(|area| area.end <= place || area.start >= place + (1 << 20))
        );
    }

    #[test]
    fn a_line_is_taken_apart() {
        let area = parse(b"7f00-8000 r-xp 00001000 fe:00 42                 /a b/c d").unwrap();
        assert_eq!(
            (area.start, area.end, area.offset),
            (0x7f00, 0x8000, 0x1000)
        );
        assert_eq!(area.path, b"/a b/c d");
        assert_eq!(area.protection, 5);
        assert!(parse(b"").is_none());
    }
}
