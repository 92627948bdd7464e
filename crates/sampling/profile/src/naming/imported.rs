//! Names that came with an imported profile.
//!
//! They are shown as they came: whoever made the profile has demangled them already. Places of a module without such
//! names are named by the module's file, as those of a recording.

use crate::hash::FxBuildHasher;
use crate::naming::debug_info::{Asking, PartDone, Seen};
use crate::naming::names::{ModuleNames, OwnName, hash_of};
use crate::processes::modules::Module;
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use dioptra_perfdata::{ImportedFrame, ImportedModule, ImportedNames, ImportedRole};
use hashbrown::HashMap;

impl Profile {
    /// Returns the names that came with the profile, if another tool's profile was imported.
    pub fn imported(&self) -> Option<&ImportedNames> {
        self.imported.as_deref()
    }
}

/// Names the places of a module that have imported names, and removes them from `places`. Returns whether the module
/// has imported names.
pub(super) fn name_places(
    names: &ImportedNames,
    module: &Module,
    places: &mut Vec<(u64, FrameId)>,
    result: &mut ModuleNames,
) -> bool {
    let Some(found) = names.module(&module.path) else {
        return false;
    };
    // By imported function: the index of its name.
    let mut ids: HashMap<u32, u32, FxBuildHasher> = HashMap::default();
    places.sort_unstable();
    places.retain(|(address, frame)| {
        let frames = found.frames(*address, ImportedRole::Executes);
        // The last function is the one whose code the place is; it is the same in both roles.
        let Some(last) = frames.and_then(<[ImportedFrame]>::last) else {
            return true;
        };
        let id = *ids.entry(last.function).or_insert_with(|| {
            let function = &names.functions[last.function as usize];
            result.push(OwnName {
                name: function.name.to_string(),
                start: None,
                file: None,
                link_name: hash_of(&function.link_name),
            })
        });
        result.places.push((*frame, id));
        false
    });
    true
}

/// Answers questions about the lines and inlined functions of those places that have imported names, and removes these
/// places from `places`.
pub(super) fn ask(
    names: &ImportedNames,
    module: &ImportedModule,
    places: &mut Vec<(u64, FrameId)>,
    asking: Asking<'_>,
) -> PartDone {
    let mut known = Vec::new();
    places.retain(|place| {
        let is_known = module.frames(place.0, ImportedRole::Executes).is_some();
        if is_known {
            known.push(*place);
        }
        !is_known
    });
    asking.ask_with_roles(&known, |address, role, found| {
        let frames = module.frames(address, role).unwrap_or_default();
        found.extend(frames.iter().map(|frame| Seen {
            function: Some(names.functions[frame.function as usize].name.clone()),
            file: frame.file.clone(),
            line: frame.line,
        }));
    })
}
