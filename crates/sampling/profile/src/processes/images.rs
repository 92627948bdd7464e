//! Images, each from one exec of a process until the next, and the programs that images belong to.

use crate::hash::FxBuildHasher;
use crate::processes::modules::{ModuleId, Modules};
use crate::processes::tasks::{ProcessId, Tasks};
use dioptra_symbols::ModuleKind;
use hashbrown::HashMap;
use std::collections::HashSet;

/// The index of an [`Image`] in [`Tasks::images`].
pub type ImageId = u32;
/// The index of a [`Program`] in [`Tasks::programs`].
pub type ProgramId = u32;

/// A program image in a process: from the process's start or an exec until its end or the next exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The process.
    pub process: ProcessId,
    /// Nanoseconds of the recording's clock at the exec or fork; `None` where the image ran before the recording.
    pub start: Option<u64>,
    /// Nanoseconds of the recording's clock at the next exec or the process's end, if that was recorded.
    pub end: Option<u64>,
    /// The executable: the first file that was mapped after the exec, or the parent's for a forked process. `None`
    /// where no mapping was recorded, such as for kernel threads.
    pub executable: Option<ModuleId>,
    /// The last name of the process's main thread while it ran this image.
    pub comm: Option<String>,
    /// The program.
    pub program: ProgramId,
    /// The image that the process was forked from, or its previous image if it is not certain that there was an exec.
    pub(crate) from: Option<ImageId>,
    /// Whether the next mapping may be that of the executable.
    pub(crate) awaits: Awaits,
}

/// The mappings that may be that of an image's executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// No mapping: the executable is known, or it is the parent's.
    Nothing,
    /// The first file is the executable.
    AnyFile,
    /// A file with this image's name is the executable. The name changed, perhaps without an exec.
    FileOfItsName,
}

/// A principal process: all processes that ran the same executable, however many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable's name, or the thread name of an image without a known executable.
    pub name: String,
    /// The executable, the first one where equal files lie at several paths.
    pub executable: Option<ModuleId>,
    /// The numbers of its processes, rising, each once.
    pub pids: Vec<u32>,
    /// Its images, rising.
    pub images: Vec<ImageId>,
}

/// The property by which two images count as the same program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    BuildId(Vec<u8>),
    Path(Vec<u8>),
    Name(String),
}

impl Image {
    pub(crate) fn new(process: ProcessId, start: Option<u64>) -> Image {
        Image {
            process,
            start,
            end: None,
            executable: None,
            comm: None,
            program: ProgramId::MAX,
            from: None,
            awaits: Awaits::AnyFile,
        }
    }

    /// Notes that the process mapped a file.
    pub(crate) fn mapped(&mut self, id: ModuleId, modules: &Modules) {
        let module = modules.get(id);
        if self.awaits == Awaits::Nothing || module.kind != ModuleKind::File {
            return;
        }
        if self.awaits == Awaits::FileOfItsName {
            // The kernel cuts names after 15 bytes.
            let name = self.comm.as_deref().unwrap_or("").as_bytes();
            let base = module.path.rsplit(|byte| *byte == b'/').next();
            let base = base.unwrap_or_default();
            if name.is_empty() || name != &base[..base.len().min(15)] {
                return;
            }
        }
        self.executable = Some(id);
        self.awaits = Awaits::Nothing;
    }
}

/// Finds the executables of all images, and their programs.
pub(crate) fn programs(tasks: &Tasks, modules: &Modules, images: &mut [Image]) -> Vec<Program> {
    for index in 0..images.len() {
        // An image has a larger id than the image it comes from.
        if images[index].executable.is_none()
            && let Some(from) = images[index].from
        {
            images[index].executable = images[from as usize].executable;
        }
    }
    // A file may be mapped with and without its build id. Both are the same file only where its path has a single build
    // id.
    let mut build_ids: HashMap<&[u8], HashSet<&[u8]>, FxBuildHasher> = HashMap::default();
    for module in images
        .iter()
        .filter_map(|image| Some(modules.get(image.executable?)))
    {
        if let Some(id) = &module.build_id {
            build_ids.entry(&module.path).or_default().insert(id);
        }
    }
    let identity = |image: &Image| match image.executable {
        None => Identity::Name(name(tasks, image)),
        Some(executable) => {
            let module = modules.get(executable);
            let own = module.build_id.as_deref();
            let only = || {
                let known = build_ids.get(&*module.path)?;
                known.iter().next().copied().filter(|_| known.len() == 1)
            };
            match own.or_else(only) {
                Some(id) => Identity::BuildId(id.to_vec()),
                None => Identity::Path(module.path.clone()),
            }
        }
    };
    let mut programs: Vec<Program> = Vec::new();
    let mut ids: HashMap<Identity, ProgramId, FxBuildHasher> = HashMap::default();
    for (id, image) in (0..).zip(images.iter_mut()) {
        let program = *ids.entry(identity(image)).or_insert_with(|| {
            programs.push(Program {
                name: match image.executable {
                    Some(executable) => modules.get(executable).label.clone(),
                    None => name(tasks, image),
                },
                executable: image.executable,
                pids: Vec::new(),
                images: Vec::new(),
            });
            // The number of programs is at most the number of images.
            ProgramId::try_from(programs.len() - 1).unwrap_or(ProgramId::MAX)
        });
        image.program = program;
        let program = &mut programs[program as usize];
        program.images.push(id);
        if let Some(process) = tasks.processes().get(image.process as usize) {
            program.pids.push(process.pid);
        }
    }
    for program in &mut programs {
        program.pids.sort_unstable();
        program.pids.dedup();
    }
    programs
}

fn name(tasks: &Tasks, image: &Image) -> String {
    match &image.comm {
        Some(comm) => comm.clone(),
        None => tasks.process_name(image.process),
    }
}
