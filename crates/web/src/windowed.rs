//! A recording loaded as `dioptra metrics` loads it: with its windows, and with the kernel's samples at the functions that
//! entered the kernel. Other views count the kernel's samples apart, so they cannot use the same counts.

use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::keys::Keys;
use crate::loaded::Named;
use crate::selected::{Selected, SelectionKey, cpus};
use crate::texts;
use dioptra_perfdata::PerfData;
use dioptra_perfevents::{ReadFormat, SampleType};
use dioptra_profile::{
    DebugInfoWanted, FrameId, KernelSamples, LoadOptions, LoadPlan, Names, Profile, SampleFilter,
    Selection, Thread,
};
use dioptra_tables::{Facts, Severity};
use dioptra_windows::collect::{CollectedWindows, WindowCollector};
use dioptra_windows::display::WindowRows;
use dioptra_windows::section::WindowsSection;
use serde_json::json;
use std::path::Path;

/// Which recording, and which parts of it: the key of recordings that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WindowedKey {
    pub selection: SelectionKey,
    /// The kind of rows, as far as it changes the parts that are loaded.
    pub rows: WindowRows,
    pub kernel_apart: bool,
}

/// A recording with its windows.
pub(crate) struct Windowed {
    pub profile: Profile,
    pub windows: Option<CollectedWindows>,
    pub named: Named,
    pub keys: Keys,
    /// The conditions of the selection that windows do not know.
    pub facts: Facts,
}

impl MemorySize for Windowed {
    fn bytes(&self) -> usize {
        let places = self.profile.stacks().len() + self.profile.frames().len();
        let windows = self.windows.as_ref().map_or(0, CollectedWindows::len);
        1 + 64 * places + 96 * windows + 64 * self.named.names.functions().len()
    }
}

impl Windowed {
    /// Reads the recording of a selection anew.
    pub(crate) fn load(
        selected: &Selected,
        key: &WindowedKey,
        ticket: &Ticket,
    ) -> Result<Windowed, Failure> {
        let loaded = &selected.loaded;
        if loaded.path == "-" {
            return Err(Failure::NotRecorded {
                text: "the profile came from standard input, which cannot be read again".to_owned(),
                remedy: "save the recording in a file, and start dioptra web with it",
            });
        }
        let path = Path::new(&loaded.path);
        let failed = |error: String| Failure::LoadFailed(error);
        let mut data = PerfData::open(path).map_err(|error| failed(error.to_string()))?;
        // The other views show the file as it was.
        if data.size() != loaded.size {
            return Err(Failure::Stale);
        }
        let section = WindowsSection::of(&mut data, Some(path));
        let (filter, mut facts) = filter(selected);
        let plan = LoadPlan {
            options: LoadOptions {
                call_chains: key.rows == WindowRows::Path || groups_have_chains(&data),
                threads: key.rows == WindowRows::Thread,
            },
            set_aside: section
                .as_ref()
                .map_or_else(Vec::new, |section| section.events(&data)),
            filter,
            kernel: match key.kernel_apart {
                true => KernelSamples::Apart,
                false => KernelSamples::WithCaller,
            },
            symbols: loaded.symbols.clone(),
            ..LoadPlan::default()
        };
        ticket.check()?;
        let (mut profile, mut windows) = match WindowCollector::new(&data, section.as_ref()) {
            Some(mut collector) => {
                let profile = Profile::load_visited(&data, &plan, &mut collector);
                (profile, Some(collector.finish()))
            }
            None => (Profile::load_with(&data, &plan), None),
        };
        ticket.check()?;
        let mut names = Names::find(&profile, loaded.symbols.clone());
        if key.rows == WindowRows::Line {
            let wanted = DebugInfoWanted {
                lines: true,
                inlined: false,
            };
            names.find_debug_info(&profile, loaded.symbols.clone(), wanted);
        }
        let named = Named::of(names);
        let keys = Keys::of(&profile);
        keep_places(selected, &mut profile, windows.as_mut(), &named, &keys);
        keep_stacks(
            selected,
            &mut profile,
            windows.as_mut(),
            (&named, &keys),
            &mut facts,
        )?;
        Ok(Windowed {
            profile,
            windows,
            named,
            keys,
            facts,
        })
    }
}

/// Whether samples that read groups of counters have call chains.
fn groups_have_chains(data: &PerfData) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| {
        event
            .attr
            .sample_type
            .contains(SampleType::READ | SampleType::CALLCHAIN)
            && event.attr.read_format.contains(ReadFormat::GROUP)
    })
}

/// The samples that a selection's conditions on time, threads and CPUs let pass, and the conditions that cannot be asked here.
fn filter(selected: &Selected) -> (SampleFilter, Facts) {
    let request = selected.key.request();
    let (keys, tasks) = (&selected.loaded.keys, selected.loaded.profile.tasks());
    let mut facts = Facts::new();
    let ids = |list: &[String], find: &dyn Fn(&str) -> Option<u32>| -> Vec<u32> {
        list.iter().filter_map(|key| find(key)).collect()
    };
    let threads = ids(&request.thread, &|key| keys.find_thread(key).ok());
    let processes = ids(&request.process, &|key| keys.find_process(key).ok());
    let mut tids = Vec::new();
    let mut program_pids: Vec<u32> = Vec::new();
    for id in ids(&request.program, &|key| keys.find_program(key).ok()) {
        let program = tasks.programs().get(id as usize);
        program_pids.extend(program.into_iter().flat_map(|program| &program.pids));
    }
    let pid_of = |thread: &Thread| {
        let process = tasks.processes().get(thread.process as usize);
        process.map(|process| process.pid)
    };
    let is_of_program = |thread: &Thread| {
        request.program.is_empty() || pid_of(thread).is_some_and(|pid| program_pids.contains(&pid))
    };
    let of_tasks = [&request.thread, &request.process, &request.program];
    if of_tasks.iter().any(|list| !list.is_empty()) {
        let all = tasks.threads().iter().zip(0_u32..);
        let passing = all.filter(|(thread, id)| {
            is_of_program(thread)
                && (request.thread.is_empty() || threads.contains(id))
                && (request.process.is_empty() || processes.contains(&thread.process))
        });
        tids.extend(passing.map(|(thread, _)| thread.tid));
        if tids.is_empty() {
            // An empty list would let all threads pass; no thread has this number.
            tids.push(u32::MAX);
        }
    }
    // A process runs one program after another; its number tells them no more apart than its threads' do.
    let others = tasks.programs().iter().zip(0_u32..);
    let chosen = ids(&request.program, &|key| keys.find_program(key).ok());
    let shared = others.filter(|(program, id)| {
        !chosen.contains(id) && program.pids.iter().any(|pid| program_pids.contains(pid))
    });
    let shared: Vec<&str> = shared.map(|(program, _)| program.name.as_str()).collect();
    if !shared.is_empty() {
        facts.add(
            Severity::Warning,
            "selection_widened",
            format!(
                "processes of the selected programs ran {} too, whose windows count here",
                texts::name(&shared.join(", "))
            ),
            json!({"parameter": "program", "programs": shared}),
        );
    }
    let filter = SampleFilter {
        comms: request.comm.clone(),
        tids,
        // The selection was made, so they are CPUs.
        cpus: cpus(&request.cpu).unwrap_or_default(),
        time: request.time.unwrap_or_default(),
    };
    (filter, facts)
}

/// Drops samples and windows whose call stacks lack the selected functions. Without call stacks a fact says that they stay.
fn keep_stacks(
    selected: &Selected,
    profile: &mut Profile,
    windows: Option<&mut CollectedWindows>,
    (named, keys): (&Named, &Keys),
    facts: &mut Facts,
) -> Result<(), Failure> {
    let request = selected.key.request();
    if request.through.is_empty() {
        return Ok(());
    }
    if !profile.options().call_chains {
        facts.add(
            Severity::Warning,
            "selection_not_applied",
            "metrics are of all functions on call stacks, since the windows were recorded without them: this condition of the \
             selection does not hold here",
            json!({"parameter": "functions on call stacks"}),
        );
        return Ok(());
    }
    let mut wanted = vec![false; named.names.functions().len()];
    for key in &request.through {
        // A function without samples here was not loaded.
        if let Ok(function) = named.find_function(keys, key) {
            wanted[function as usize] = true;
        }
    }
    let stacks = profile.stacks_through(&named.names, &wanted);
    if let Some(windows) = windows {
        windows.retain(|stack| stacks.get(stack as usize) == Some(&true));
    }
    *profile = profile.select(&Selection {
        stacks: Some(stacks),
        ..Selection::default()
    })?;
    Ok(())
}

/// Drops samples and windows outside of the selected modules and functions.
fn keep_places(
    selected: &Selected,
    profile: &mut Profile,
    mut windows: Option<&mut CollectedWindows>,
    named: &Named,
    keys: &Keys,
) {
    let request = selected.key.request();
    let mut retain = |profile: &mut Profile, keep: &dyn Fn(FrameId) -> bool| {
        if let Some(windows) = &mut windows {
            windows.retain(|stack| keep(profile.innermost_frame(stack)));
        }
        profile.retain_samples(keep);
    };
    if !request.module.is_empty() {
        let mut wanted = vec![false; profile.modules().len()];
        for key in &request.module {
            // A module without samples here was not loaded.
            if let Ok(module) = keys.find_module(key) {
                wanted[module as usize] = true;
            }
        }
        let frames = profile.frames().iter();
        let frames: Vec<bool> = frames
            .map(|frame| wanted.get(frame.module as usize) == Some(&true))
            .collect();
        retain(profile, &|frame| frames[frame as usize]);
    }
    if !request.function.is_empty() {
        let mut wanted = vec![false; named.names.functions().len()];
        for key in &request.function {
            if let Ok(function) = named.find_function(keys, key) {
                wanted[function as usize] = true;
            }
        }
        retain(profile, &|frame| {
            let mut functions = named.names.chain_of(frame, None).iter();
            functions.any(|function| wanted[*function as usize])
        });
    }
}
