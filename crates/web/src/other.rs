//! The other profile of a comparison, and the selection that holds there.
//!
//! Keys name things of one recording. A condition on a thing of the first profile becomes a condition on the things of the
//! other profile that have its name; a condition whose things the other profile lacks does not hold there, and a fact says so.

use crate::api::SelectionRequest;
use crate::failure::Failure;
use crate::loaded::{Loaded, Named, NamesWanted};
use crate::selected::Selected;
use crate::server::Shared;
use dioptra_profile::{FunctionId, Profile};
use dioptra_report::TableEvent;
use dioptra_tables::{Facts, Severity};
use serde_json::json;
use std::sync::Arc;

/// The selected samples of the other profile.
pub(crate) struct Other {
    pub selected: Selected,
    /// The conditions that do not hold there.
    pub facts: Facts,
}

/// Both profiles while a selection is carried over.
struct Carried<'a> {
    from: &'a Loaded,
    to: &'a Loaded,
    names: (&'a Named, &'a Named),
    facts: Facts,
}

impl Other {
    /// Selects samples of the profile with the index `with` as a request selects those of the first one.
    pub(crate) fn of(
        shared: &Shared,
        selected: &Selected,
        request: &SelectionRequest,
        with: usize,
        lines: bool,
    ) -> Result<Other, Failure> {
        if with == selected.loaded.index {
            return Err(Failure::parameter("with", "is the profile itself"));
        }
        let to = shared.profiles.get(Some(with), None)?;
        let wanted = selected.wanted;
        let (request, facts) = carry(&selected.loaded, &to, wanted, request);
        let events = both(&selected.profile, &to.profile);
        let of_first = selected.events.iter();
        let events = of_first.filter_map(|event| {
            let mut events = events.iter();
            let found = events.find(|both| both.of[0] == Some(*event))?;
            Some(to.keys.event(found.of[1]?))
        });
        let request = SelectionRequest {
            event: events.collect(),
            ..request
        };
        Ok(Other {
            selected: Selected::of(shared, &request, lines)?,
            facts,
        })
    }
}

/// The events of two profiles, matched.
pub(crate) fn both(first: &Profile, other: &Profile) -> Vec<TableEvent> {
    TableEvent::all(&[first, other])
}

/// A selection of one profile as a selection of another.
fn carry(
    from: &Loaded,
    to: &Arc<Loaded>,
    wanted: NamesWanted,
    request: &SelectionRequest,
) -> (SelectionRequest, Facts) {
    let mut carried = Carried {
        from,
        to,
        names: (from.named(wanted), to.named(wanted)),
        facts: Facts::new(),
    };
    let mut out = SelectionRequest {
        profile: Some(to.index),
        generation: None,
        process: carried.each("process", &request.process, Carried::processes),
        thread: carried.each("thread", &request.thread, Carried::threads),
        program: carried.each("program", &request.program, Carried::programs),
        module: carried.each("module", &request.module, Carried::modules),
        function: carried.each("function", &request.function, Carried::functions),
        through: carried.each("through", &request.through, Carried::functions),
        ..request.clone()
    };
    if out.time.is_some() && to.duration.is_none() {
        out.time = None;
        carried.tell("time", "the time");
    }
    if !out.cpu.is_empty() && !to.has_cpus {
        out.cpu.clear();
        carried.tell("cpu", "the CPUs");
    }
    if !out.through.is_empty() && !to.has_chains() {
        out.through.clear();
        carried.tell("through", "the call stacks");
    }
    (out, carried.facts)
}

impl Carried<'_> {
    /// The keys in the other profile of the things with these keys.
    fn each(
        &mut self,
        what: &'static str,
        keys: &[String],
        find: fn(&Self, &str) -> Vec<String>,
    ) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for key in keys {
            for key in find(self, key) {
                if !found.contains(&key) {
                    found.push(key);
                }
            }
        }
        if found.is_empty() && !keys.is_empty() {
            let of_what = match what {
                "through" => "the functions on call stacks".to_owned(),
                "process" => "the processes".to_owned(),
                what => format!("the {what}s"),
            };
            self.tell(what, &of_what);
        }
        found
    }

    fn tell(&mut self, id: &str, what: &str) {
        self.facts.add(
            Severity::Warning,
            "selection_not_applied",
            format!(
                "{what} of the selection are not in {}: all of its samples count, as far as the other conditions hold",
                self.to.path
            ),
            json!({"parameter": id, "profile": self.to.index}),
        );
    }

    fn processes(&self, key: &str) -> Vec<String> {
        let Ok(id) = self.from.keys.find_process(key) else {
            return Vec::new();
        };
        let (from, to) = (self.from.profile.tasks(), self.to.profile.tasks());
        let comm = from
            .processes()
            .get(id as usize)
            .map(|process| &process.comm);
        let same = |id: u32| to.processes().get(id as usize).map(|other| &other.comm) == comm;
        if let Ok(id) = self.to.keys.find_process(key)
            && same(id)
        {
            return vec![key.to_owned()];
        }
        let all = 0..to.processes().len() as u32;
        all.filter(|id| same(*id))
            .map(|id| self.to.keys.process(id))
            .collect()
    }

    fn threads(&self, key: &str) -> Vec<String> {
        let Ok(id) = self.from.keys.find_thread(key) else {
            return Vec::new();
        };
        let (from, to) = (self.from.profile.tasks(), self.to.profile.tasks());
        let comm = from.threads().get(id as usize).map(|thread| &thread.comm);
        let same = |id: u32| to.threads().get(id as usize).map(|other| &other.comm) == comm;
        if let Ok(id) = self.to.keys.find_thread(key)
            && same(id)
        {
            return vec![key.to_owned()];
        }
        let all = 0..to.threads().len() as u32;
        all.filter(|id| same(*id))
            .map(|id| self.to.keys.thread(id))
            .collect()
    }

    fn programs(&self, key: &str) -> Vec<String> {
        let Ok(id) = self.from.keys.find_program(key) else {
            return Vec::new();
        };
        if self.to.keys.find_program(key).is_ok() {
            return vec![key.to_owned()];
        }
        let (from, to) = (self.from.profile.tasks(), self.to.profile.tasks());
        let name = from
            .programs()
            .get(id as usize)
            .map(|program| &program.name);
        let all = to.programs().iter().zip(0_u32..);
        all.filter(|(program, _)| Some(&program.name) == name)
            .map(|(_, id)| self.to.keys.program(id))
            .collect()
    }

    fn modules(&self, key: &str) -> Vec<String> {
        let Ok(id) = self.from.keys.find_module(key) else {
            return Vec::new();
        };
        if self.to.keys.find_module(key).is_ok() {
            return vec![key.to_owned()];
        }
        let label = &self.from.profile.modules().get(id).label;
        let all = self.to.profile.modules().iter().zip(0_u32..);
        all.filter(|(module, _)| module.label == *label)
            .map(|(_, id)| self.to.keys.module(id))
            .collect()
    }

    fn functions(&self, key: &str) -> Vec<String> {
        let (from, to) = self.names;
        let Ok(id) = from.find_function(&self.from.keys, key) else {
            return Vec::new();
        };
        same_functions((self.from, from), (self.to, to), id)
            .into_iter()
            .map(|id| to.function_key(&self.to.keys, id))
            .collect()
    }
}

/// The functions of another profile that have the name and the module's name of a function.
pub(crate) fn same_functions(
    (from, from_names): (&Loaded, &Named),
    (to, to_names): (&Loaded, &Named),
    id: FunctionId,
) -> Vec<FunctionId> {
    let Some(function) = from_names.names.functions().get(id as usize) else {
        return Vec::new();
    };
    let label = &from.profile.modules().get(function.module).label;
    let all = to_names.names.functions().iter().zip(0_u32..);
    all.filter(|(other, _)| {
        other.name == function.name
            && other.is_inlined == function.is_inlined
            && to.profile.modules().get(other.module).label == *label
    })
    .map(|(_, id)| id)
    .collect()
}
