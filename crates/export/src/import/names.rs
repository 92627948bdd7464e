//! Functions, modules and addresses of an imported profile.

use dioptra_perfdata::{
    ImportedFrame, ImportedFunction, ImportedModule, ImportedNames, ImportedRole,
};
use hashbrown::HashMap;
use std::sync::Arc;

/// The index of a [`Module`].
pub(super) type ModuleIndex = u32;

/// The relative address from which on locations lie whose address is not known. No file is as large.
const MADE_UP: u64 = 1 << 40;
/// The address of the first module's made-up locations. No process has memory there.
const MADE_UP_MEMORY: u64 = 1 << 57;
/// The size of the memory for a module's made-up locations, as a power of two.
const MADE_UP_BITS: u32 = 32;
/// The address of the first kernel module's made-up locations, and the size for each as a power of two.
const KERNEL_MEMORY: u64 = 0xffff_9000_0000_0000;
const KERNEL_BITS: u32 = 28;
/// The largest number of kernel modules, so that their memory does not reach that of kernels.
const MOST_KERNEL_MODULES: usize = 1 << 15;
/// The longest path, in bytes, for which a record has room.
const LONGEST_PATH: usize = 4000;

/// A range of memory in which a module is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub start: u64,
    pub end: u64,
    /// The module's relative address at `start`.
    pub offset: u64,
}

/// A module of an imported profile.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub path: String,
    pub is_kernel: bool,
    pub build_id: Option<Vec<u8>>,
    /// The memory where the profile says the module was.
    pub mapped: Option<Mapped>,
    /// The memory of locations without an address; `None` for a kernel module beyond the largest number of these.
    pub made_up: Mapped,
    /// The number of locations without an address.
    next: u64,
}

/// The memory of a module that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// [`Module::mapped`].
    Mapped,
    /// [`Module::made_up`].
    MadeUp,
    /// No mapping: the address stands for itself.
    Nowhere,
}

/// An address in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Location {
    pub module: ModuleIndex,
    pub part: Part,
    /// The address in memory.
    pub address: u64,
    pub in_kernel: bool,
}

impl Location {
    /// Returns the location of an address in no module.
    pub(super) fn nowhere(address: u64) -> Location {
        Location {
            module: ModuleIndex::MAX,
            part: Part::Nowhere,
            address,
            in_kernel: false,
        }
    }
}

/// The functions and modules of a profile, as they are met.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    modules: Vec<Module>,
    kernel_modules: usize,
    /// By module.
    named: Vec<ImportedModule>,
    functions: Vec<ImportedFunction>,
    function_ids: HashMap<ImportedFunction, u32>,
    texts: HashMap<Arc<str>, ()>,
    /// The number of paths that were cut.
    pub cut: u64,
}

impl NameTable {
    /// Adds a module.
    pub(super) fn add_module(
        &mut self,
        path: &str,
        build_id: Option<Vec<u8>>,
        mapped: Option<Mapped>,
        is_kernel: bool,
    ) -> ModuleIndex {
        let mut path = readable(path);
        if path.len() > LONGEST_PATH {
            self.cut += 1;
            // The end of a path says more, and the number keeps the paths apart.
            let mut from = path.len() - LONGEST_PATH;
            while !path.is_char_boundary(from) {
                from += 1;
            }
            path = format!("[cut {}]{}", self.modules.len(), &path[from..]);
        }
        let is_kernel = is_kernel && self.kernel_modules < MOST_KERNEL_MODULES;
        let made_up = match is_kernel {
            true => {
                let start = KERNEL_MEMORY + ((self.kernel_modules as u64) << KERNEL_BITS);
                self.kernel_modules += 1;
                // Addresses of the kernel are relative to nothing.
                Mapped {
                    start,
                    end: start + (1 << KERNEL_BITS),
                    offset: start,
                }
            }
            false => {
                let start = MADE_UP_MEMORY + ((self.modules.len() as u64) << MADE_UP_BITS);
                Mapped {
                    start,
                    end: start + (1 << MADE_UP_BITS),
                    // Modules of one path differ in it.
                    offset: MADE_UP + start,
                }
            }
        };
        self.named.push(ImportedModule::new(path.clone()));
        self.modules.push(Module {
            path,
            is_kernel,
            build_id,
            mapped,
            made_up,
            next: 0,
        });
        // Each module takes more memory than 4 Gi of them would leave.
        u32::try_from(self.modules.len() - 1).unwrap_or(u32::MAX)
    }

    /// Returns a module.
    pub(super) fn module(&self, index: ModuleIndex) -> &Module {
        &self.modules[index as usize]
    }

    /// Returns all modules.
    pub(super) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the id of a function.
    pub(super) fn function(&mut self, name: &str, link_name: &str) -> u32 {
        let function = ImportedFunction {
            name: self.text(name),
            link_name: self.text(link_name),
        };
        if let Some(id) = self.function_ids.get(&function) {
            return *id;
        }
        let id = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        self.functions.push(function.clone());
        self.function_ids.insert(function, id);
        id
    }

    /// Returns a text, of which there is one copy.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some((known, ())) = self.texts.get_key_value(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone(), ());
        text
    }

    /// Returns a new location without a known address.
    pub(super) fn make_up(&mut self, module: ModuleIndex) -> Location {
        let of_module = &mut self.modules[module as usize];
        let Mapped { start, end, .. } = of_module.made_up;
        // A table of so many locations does not fit in memory.
        let address = (start + of_module.next).min(end - 1);
        of_module.next += 1;
        Location {
            module,
            part: Part::MadeUp,
            address,
            in_kernel: of_module.is_kernel,
        }
    }

    /// Names a location in a role; innermost function first.
    pub(super) fn name(
        &mut self,
        location: Location,
        role: ImportedRole,
        frames: &[ImportedFrame],
    ) {
        let Some(module) = self.modules.get(location.module as usize) else {
            return;
        };
        if frames.is_empty() {
            return;
        }
        let relative = match location.part {
            Part::Nowhere => return,
            Part::MadeUp => module.made_up,
            Part::Mapped => module.mapped.unwrap_or(module.made_up),
        };
        let relative = location
            .address
            .wrapping_sub(relative.start)
            .wrapping_add(relative.offset);
        self.named[location.module as usize].add(relative, role, frames);
    }

    /// Returns the table of the file.
    pub(super) fn finish(self, format: &str) -> ImportedNames {
        let mut by_path: HashMap<String, usize> = HashMap::new();
        let mut modules: Vec<ImportedModule> = Vec::new();
        for module in self.named {
            if module.is_empty() {
                continue;
            }
            // Two modules may have one path, such as two builds of a program.
            match by_path.get(&module.path) {
                Some(index) => modules[*index].append(module),
                None => {
                    by_path.insert(module.path.clone(), modules.len());
                    modules.push(module);
                }
            }
        }
        for module in &mut modules {
            module.sort();
        }
        ImportedNames {
            format: format.to_owned(),
            functions: self.functions,
            modules,
        }
    }
}

/// Returns a path that readers take for a module's name. Some names of mappings mean a process's memory or a file of a
/// compiler on this machine, which an imported profile cannot refer to.
fn readable(path: &str) -> String {
    const MEMORY: [&str; 3] = ["//anon", "/dev/zero", "/anon_hugepage"];
    let is_memory = MEMORY.iter().any(|prefix| path.starts_with(prefix));
    let is_jit_dump = path.ends_with(".dump");
    let plain = path.replace('\0', " ");
    match is_memory || is_jit_dump {
        true => format!("[{}]", plain.trim_start_matches('/')),
        false => plain,
    }
}
