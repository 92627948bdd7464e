//! Names for the places of a recording that goes on: each place is named once, when it comes.

use crate::hash::FxBuildHasher;
use crate::naming::names::{
    ModuleNames, Names, Shown, name_by_symbols, name_without_file, request,
};
use crate::processes::modules::{Module, ModuleId};
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use dioptra_symbols::{ModuleSymbols, SymbolOptions, Symbolizer};
use hashbrown::HashMap;

/// The largest number of modules whose symbols stay in memory. Symbols of others are read again when new places of them come.
const MOST_LOADED: usize = 64;

/// The names of the places of one live profile, which grow with it.
pub struct LiveNames {
    symbolizer: Symbolizer,
    shown: Shown,
    /// The number of frames that have names.
    named: usize,
    /// By module.
    modules: Vec<Growing>,
    /// The symbols of modules, with the number of the update that used them last.
    loaded: HashMap<ModuleId, (ModuleSymbols, u64), FxBuildHasher>,
    updates: u64,
}

/// The names of one module, and the index of each.
#[derive(Default)]
struct Growing {
    named: ModuleNames,
    /// The places of code that was made at run time, whose names may come later than the places.
    places: Vec<(u64, FrameId)>,
    /// Names by their start and their hash.
    ids: HashMap<(Option<u64>, u64), u32, FxBuildHasher>,
}

impl LiveNames {
    /// Prepares to name the places of snapshots of one [`crate::LiveProfile`]. `profile` is one of them; it states the kernel
    /// if the options do not.
    pub fn new(profile: &Profile, mut options: SymbolOptions) -> LiveNames {
        let shown = Shown {
            demangled: options.demangle,
        };
        // Demangling happens once for each name, not for each place.
        options.demangle = false;
        options
            .recorded_kernel
            .get_or_insert_with(|| profile.recorded_kernel().clone());
        LiveNames {
            symbolizer: Symbolizer::new(options),
            shown,
            named: 0,
            modules: Vec::new(),
            loaded: HashMap::default(),
            updates: 0,
        }
    }

    /// Returns the names of a snapshot's places. Only places that earlier snapshots did not have are looked up. Numbers of
    /// functions differ from those of earlier names.
    pub fn update(&mut self, profile: &Profile) -> Names {
        self.updates += 1;
        let modules = profile.modules();
        self.modules.resize_with(modules.len(), Growing::default);
        let mut new: Vec<Vec<(u64, FrameId)>> = vec![Vec::new(); modules.len()];
        for (id, frame) in (0_u32..).zip(profile.frames().iter()).skip(self.named) {
            if let Some(places) = new.get_mut(frame.module as usize) {
                places.push((frame.address, id));
            }
        }
        self.named = profile.frames().len();
        for (id, mut places) in (0_u32..).zip(new) {
            if !places.is_empty() {
                places.sort_unstable();
                self.name(id, modules.get(id), places);
            }
        }
        let mut names = Names {
            of_frame: vec![0; profile.frames().len()],
            ..Names::default()
        };
        for (id, growing) in (0_u32..).zip(&self.modules) {
            if !growing.named.places.is_empty() {
                names.append(id, growing.named.clone());
            }
        }
        self.unload();
        names
    }

    /// Names new places of a module.
    fn name(&mut self, id: ModuleId, module: &Module, places: Vec<(u64, FrameId)>) {
        let growing = &mut self.modules[id as usize];
        let all = growing.places.iter().chain(&places).copied();
        let all: Vec<(u64, FrameId)> = all.collect();
        if let Some(named) = name_without_file(module, &all, &self.symbolizer, self.shown) {
            // Such code may have got names, or other ones, since its earlier places came.
            growing.named = named;
            growing.places = all;
            return;
        }
        let symbolizer = &self.symbolizer;
        let load = || (symbolizer.load(&request(module)), 0);
        let (symbols, used) = self.loaded.entry(id).or_insert_with(load);
        *used = self.updates;
        growing.add(name_by_symbols(symbols, &places, self.shown));
    }

    /// Frees the symbols that were used least recently, beyond the limit.
    fn unload(&mut self) {
        while self.loaded.len() > MOST_LOADED {
            let oldest = self.loaded.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(id, _)| *id) else {
                return;
            };
            self.loaded.remove(&oldest);
        }
    }
}

impl Growing {
    /// Adds names and places, each name once.
    fn add(&mut self, new: ModuleNames) {
        let mut numbers = Vec::with_capacity(new.names.len());
        for name in new.names {
            let next = u32::try_from(self.named.names.len()).unwrap_or(u32::MAX);
            let key = (name.start, name.link_name);
            let number = *self.ids.entry(key).or_insert(next);
            if number == next {
                self.named.names.push(name);
            }
            numbers.push(number);
        }
        let places = new.places.into_iter();
        let places = places.map(|(frame, name)| (frame, numbers[name as usize]));
        self.named.places.extend(places);
        self.named.notes = new.notes;
    }
}
