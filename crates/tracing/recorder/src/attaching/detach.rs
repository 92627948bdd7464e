//! Gives a process its own instructions back.

use crate::analysis::prepare::open;
use crate::serving::loaded::LoadedModules;
use crate::serving::maps::{MappedModule, Maps};
use crate::serving::stopping::{CannotStop, StoppedThreads, TracerCode};
use dioptra_tracelayout::message::{PATCH_SIZE, Patch};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes that a patch has overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// The patch.
    pub patch: Patch,
    /// The bytes that were there before, as many as the patch has.
    pub bytes: [u8; PATCH_SIZE],
}

impl Original {
    /// Returns whether threads may execute a second instruction of the patch: the patch is longer than a jump or a call
    /// with its prefix.
    fn is_double(&self) -> bool {
        self.patch.length > 6
    }
}

/// Reads the bytes that the patches of a module will overwrite.
///
/// Code that is not as its file has it belongs to somebody else, and its patches are left out. A jump into memory of
/// dioptra's is an exception: a recorder that was killed has left it there, and the file has what was there before.
///
/// # Errors
/// If the process or the file can't be read.
pub fn originals(pid: u32, module: &MappedModule, patches: &[Patch]) -> io::Result<Vec<Original>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let file = match open(pid, module) {
        Some((path, _)) => File::open(path)?,
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    let maps = Maps::read(pid)?;
    let is_ours = |address: u64| {
        let mut areas = maps.areas.iter();
        let area = areas.find(|area| (area.start..area.end).contains(&address));
        area.is_some_and(|area| area.path.starts_with(b"/memfd:dioptra"))
    };
    let read = |patch: &Patch| {
        let size = usize::from(patch.length).min(PATCH_SIZE);
        let (mut here, mut there) = ([0; PATCH_SIZE], [0; PATCH_SIZE]);
        memory
            .read_exact_at(here.get_mut(..size)?, patch.address)
            .ok()?;
        let mut bytes = here;
        if patch.protection & libc::PROT_EXEC as u8 != 0 {
            let offset = module.offset(patch.address)?;
            file.read_exact_at(there.get_mut(..size)?, offset).ok()?;
            if here != there && !target(patch.address, &here).is_some_and(is_ours) {
                return None;
            }
            bytes = there;
        }
        Some(Original {
            patch: *patch,
            bytes,
        })
    };
    Ok(patches.iter().filter_map(read).collect())
}

/// Returns the address to which a jump or a call of the forms that x86-64's patches have leads.
fn target(address: u64, bytes: &[u8; PATCH_SIZE]) -> Option<u64> {
    let (behind, distance) = match *bytes {
        [0xe9, a, b, c, d, ..] => (5, [a, b, c, d]),
        [0x67, 0xe8, a, b, c, d, ..] => (6, [a, b, c, d]),
        _ => return None,
    };
    let distance = i64::from(i32::from_le_bytes(distance));
    Some((address + behind).wrapping_add_signed(distance))
}

/// The outcome of a detachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The number of patches that were taken out.
    pub restored: usize,
    /// The number of patches that somebody else has overwritten meanwhile, and that were left alone.
    pub changed: usize,
    /// The number of patches that stay because a thread stays in the tracer's code.
    pub kept: usize,
}

impl Restored {
    /// Returns the sum of two outcomes.
    pub fn and(self, other: Restored) -> Restored {
        Restored {
            restored: self.restored + other.restored,
            changed: self.changed + other.changed,
            kept: self.kept + other.kept,
        }
    }
}

/// Writes a process's own instructions back, while its threads are stopped.
///
/// Most patches begin with one instruction, a jump or a call, and nothing leads to the bytes behind that. Some, of functions
/// that begin with a call, have another instruction behind the jump, to which the pool's code leads. So threads first come
/// out of the tracer's code; if one stays there, those patches stay, too.
///
/// # Errors
/// [`CannotStop`], if the threads can't be stopped or the memory can't be written.
pub fn restore(pid: u32, modules: &LoadedModules) -> Result<Restored, CannotStop> {
    let mut outcome = Restored::default();
    if modules.originals().next().is_none() {
        return Ok(outcome);
    }
    // No thread is spared: 0 is none's id.
    let mut stopped = StoppedThreads::stop(pid, 0)?;
    let mut tracer = tracer_code(&Maps::read(pid)?, modules.thread_block());
    let double = modules.originals().filter(|original| original.is_double());
    tracer.ranges.extend(double.map(|original| {
        let start = original.patch.address;
        start + 1..start + u64::from(original.patch.length)
    }));
    let are_out = stopped.come_out(&tracer)?;
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    for original in modules.originals() {
        let size = usize::from(original.patch.length).min(PATCH_SIZE);
        let mut here = [0; PATCH_SIZE];
        let is_ours = memory
            .read_exact_at(&mut here[..size], original.patch.address)
            .is_ok()
            && here[..size] == original.patch.bytes[..size];
        if !is_ours {
            outcome.changed += usize::from(here[..size] != original.bytes[..size]);
        } else if original.is_double() && !are_out {
            outcome.kept += 1;
        } else {
            memory.write_all_at(&original.bytes[..size], original.patch.address)?;
            outcome.restored += 1;
        }
    }
    Ok(outcome)
}

/// Returns the code of the runtime and of the pools in a process.
pub fn tracer_code(maps: &Maps, thread_block: i64) -> TracerCode {
    let areas = maps.areas.iter();
    let ours = areas
        .filter(|area| area.path.starts_with(b"/memfd:dioptra"))
        .filter(|area| area.protection & libc::PROT_EXEC as u8 != 0);
    TracerCode {
        ranges: ours.map(|area| area.start..area.end).collect(),
        thread_block,
    }
}
