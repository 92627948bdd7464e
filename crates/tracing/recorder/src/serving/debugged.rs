//! Processes that a debugger runs. Its breakpoints are instructions in their code, which it takes out by writing the
//! bytes that were there before. Bytes that it has written are left alone, and so are places that it may still write
//! to.

use super::maps::MappedModule;
use super::plan::ModulePlan;
use crate::analysis::prepare::{is_linker, open};
use crate::processor::Native;
use crate::recording::notes::TraceNote;
use dioptra_processes::procfs;
use dioptra_trace_patch::Arch;
use dioptra_tracelayout::message::PATCH_SIZE;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A debugger, by its name, and the process that it runs.
#[derive(Clone, Debug)]
pub struct Debugger {
    name: String,
    pid: u32,
}

/// The reason why patches of a module were left out for the sake of a debugger's breakpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakpointTrouble {
    /// The debugger has breakpoints in the dynamic linker, where the tracer would be told of libraries.
    Linker,
    /// The debugger has breakpoints in the C library, where the tracer would be told of jumps and executed programs.
    Library,
    /// The debugger had set breakpoints in so many functions before the program began.
    Set(usize),
    /// The debugger may set breakpoints in the middle of the patches of so many functions.
    Later(usize),
    /// The breakpoints in so many functions cannot be read from the program's memory.
    Unread(usize),
}

impl BreakpointTrouble {
    /// Writes the sentence about a module of a program that a debugger runs.
    pub(crate) fn write(
        self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        module: &Path,
    ) -> fmt::Result {
        let path = module.display();
        let lost = match self {
            BreakpointTrouble::Linker => "libraries that are loaded later are not traced",
            BreakpointTrouble::Library => "jumps and executed programs may be missed",
            BreakpointTrouble::Set(functions) => {
                return write!(
                    f,
                    "{path}: {functions} functions are not traced because a debugger ({name}) had set breakpoints in them \
                     before the program began; set them when it runs (after `start`)"
                );
            }
            BreakpointTrouble::Later(functions) => {
                return write!(
                    f,
                    "{path}: {functions} functions are not traced because a debugger ({name}) runs the program: its \
                     breakpoints behind their first instructions would lie in the middle of a jump; compile them with {}",
                    Native::ROOM
                );
            }
            BreakpointTrouble::Unread(functions) => {
                return write!(
                    f,
                    "{path}: {functions} functions are not traced because a debugger ({name}) runs the program, and its \
                     breakpoints can't be read from the program's memory"
                );
            }
        };
        write!(
            f,
            "{lost}: a debugger ({name}) has breakpoints where the tracer would be told of them, in {path}"
        )
    }
}

/// The numbers of a module's patches that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spared {
    /// The number of patches where a breakpoint is set.
    breakpoints: usize,
    /// The number of patches in whose middle a breakpoint may be set later.
    divided: usize,
    /// The number of patches where breakpoints can't be read from the program's memory.
    unread: usize,
}

impl Debugger {
    /// Returns the debugger that runs a process, if there is one.
    pub fn of(pid: u32) -> Option<Debugger> {
        // These programs stop the process, but set no breakpoints.
        const OTHERS: [&str; 2] = ["strace", "proot"];
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"))?;
        // A thread of a recorder that attaches controls the thread that connects.
        let ours = procfs::threads(std::process::id());
        let is_another = |tid: &u32| *tid != 0 && !ours.contains(tid);
        let tracer: u32 = tracer.trim().parse().ok().filter(is_another)?;
        let name = procfs::comm(tracer, tracer).unwrap_or_default();
        let name = String::from_utf8_lossy(&name).into_owned();
        (!OTHERS.contains(&name.as_str())).then_some(Debugger { name, pid })
    }

    /// Takes the patches out of a plan that would break a breakpoint, or be broken by one. `runtimes_own` says that the
    /// module is the C library or the dynamic linker, where no breakpoints are expected behind first instructions.
    pub fn spare(
        &self,
        plan: &mut ModulePlan,
        module: &MappedModule,
        runtimes_own: bool,
    ) -> Spared {
        let mut spared = Spared::default();
        let memory = File::open(format!("/proc/{}/mem", self.pid)).ok();
        let file = open(self.pid, module).and_then(|(path, _)| File::open(path).ok());
        let bytes = |file: &Option<File>, at: u64, size: usize| {
            let mut bytes = vec![0; size];
            let read = file.as_ref()?.read_exact_at(&mut bytes, at);
            read.is_ok().then_some(bytes)
        };
        plan.patches.retain(|patch| {
            let is_code = patch.protection & libc::PROT_EXEC as u8 != 0;
            let size = usize::from(patch.length).min(PATCH_SIZE);
            if !is_code {
                return true;
            }
            let original = module
                .offset(patch.address)
                .and_then(|offset| bytes(&file, offset, size));
            let (Some(original), Some(here)) = (original, bytes(&memory, patch.address, size))
            else {
                spared.unread += 1;
                return false;
            };
            let is_free = here == original;
            let whole = runtimes_own || Native::is_whole(&original);
            // A patch that does nothing takes out a compiler's hook. Nothing is lost without it.
            let is_wanted = !Native::is_nothing(patch.bytes.get(..size).unwrap_or_default());
            spared.breakpoints += usize::from(is_wanted && !is_free);
            spared.divided += usize::from(is_wanted && is_free && !whole);
            is_free && whole
        });
        spared
    }

    /// Returns the notes about patches that were left out.
    pub fn notes(
        &self,
        spared: Spared,
        module: &MappedModule,
        runtimes_own: bool,
    ) -> Vec<TraceNote> {
        let note = |trouble| TraceNote::Debugged {
            debugger: self.name.clone(),
            module: module.path.clone(),
            trouble,
        };
        if runtimes_own && spared != Spared::default() {
            return vec![note(match is_linker(&module.path) {
                true => BreakpointTrouble::Linker,
                false => BreakpointTrouble::Library,
            })];
        }
        let Spared {
            breakpoints,
            divided,
            unread,
        } = spared;
        [
            (breakpoints, BreakpointTrouble::Set(breakpoints)),
            (divided, BreakpointTrouble::Later(divided)),
            (unread, BreakpointTrouble::Unread(unread)),
        ]
        .into_iter()
        .filter(|(functions, _)| *functions > 0)
        .map(|(_, trouble)| note(trouble))
        .collect()
    }
}
