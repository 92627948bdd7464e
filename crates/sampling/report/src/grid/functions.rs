//! The matching of functions of several profiles, although several functions may share a name.

use super::same::Match;
use crate::Input;
use dioptra_profile::{FunctionId, FunctionName, KERNEL, Module, ModuleId, Profile};
use dioptra_symbols::ModuleKind;
use std::collections::HashMap;
use std::sync::Arc;

/// Functions of one name that share a row although nothing shows whether they are the same function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The module's name in tables.
    pub module: String,
    pub function: String,
    /// For each profile, the number of its functions in the row.
    pub functions: Vec<usize>,
}

/// A function that was matched by name although its source files' names differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherFile {
    pub module: String,
    pub function: String,
    pub files: (Arc<str>, Arc<str>),
}

/// Notes on the matching of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatchNotes {
    pub merged: Vec<Merged>,
    pub other_files: Vec<OtherFile>,
    /// The names of modules whose builds differ between profiles, so that addresses say nothing.
    pub builds: Vec<String>,
}

/// A function of one profile.
#[derive(Clone)]
struct Member<'a> {
    input: usize,
    id: FunctionId,
    build: Build<'a>,
    /// The first address; in the kernel, its distance from the kernel's start.
    start: Option<u64>,
    function: &'a FunctionName,
}

/// A build of a module. In equal builds, functions with different addresses are different functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build<'a> {
    Id(&'a [u8]),
    /// An unknown build.
    Unknown,
}

impl Build<'_> {
    fn is_same(self, other: Self) -> bool {
        self == other && self != Build::Unknown
    }

    fn is_other(self, other: Self) -> bool {
        self != other && self != Build::Unknown && other != Build::Unknown
    }
}

/// Functions that share a row.
struct Group<'a> {
    members: Vec<Member<'a>>,
}

/// The functions of all profiles, matched.
#[derive(Default)]
pub(super) struct SameFunctions<'a> {
    /// For each profile and function, the number of its row among the rows of its name and module.
    numbers: Vec<Vec<u32>>,
    /// Rows that several functions share, in the same order in every run.
    shared: Vec<Group<'a>>,
    /// The names of modules whose builds differ between profiles.
    builds: Vec<String>,
}

impl<'a> SameFunctions<'a> {
    /// Matches the functions of all profiles; `modules` are the matched modules by profile and module.
    pub(super) fn new(inputs: &[Input<'a>], modules: &[Vec<usize>], matching: Match) -> Self {
        let mut by_name: HashMap<(usize, bool, &str), Vec<Member<'_>>> = HashMap::new();
        let mut numbers = Vec::new();
        for (place, input) in inputs.iter().enumerate() {
            let functions = input.names.functions();
            numbers.push(vec![0_u32; functions.len()]);
            for (id, function) in (0..).zip(functions) {
                let module = input.profile.modules().get(function.module);
                let (build, start) = build_of(input.profile, module, function.start);
                let number = modules[place].get(function.module as usize).copied();
                let key = (
                    number.unwrap_or(usize::MAX),
                    function.is_inlined,
                    &*function.name,
                );
                by_name.entry(key).or_default().push(Member {
                    input: place,
                    id,
                    build,
                    start,
                    function,
                });
            }
        }
        let mut names: Vec<_> = by_name.into_iter().collect();
        names.retain(|(_, members)| members.len() > 1);
        names.sort_unstable_by_key(|(key, _)| *key);
        let mut shared = Vec::new();
        for (_, members) in names {
            let rows = match_members(members, inputs.len());
            for (number, group) in (0..).zip(&rows) {
                for member in &group.members {
                    numbers[member.input][member.id as usize] = number;
                }
            }
            shared.extend(rows.into_iter().filter(|group| group.members.len() > 1));
        }
        SameFunctions {
            numbers,
            shared,
            builds: match matching {
                Match::Versions => other_builds(inputs, modules),
                Match::Equal => Vec::new(),
            },
        }
    }

    /// Returns the number of a function's row among the rows of its name and module.
    pub(super) fn of(&self, input: usize, function: FunctionId) -> u32 {
        let known = self.numbers.get(input);
        let known = known.and_then(|numbers| numbers.get(function as usize));
        known.copied().unwrap_or(0)
    }

    /// Returns notes on the matching of the functions for which `has_row` holds.
    pub(super) fn notes(
        &self,
        inputs: &[Input<'_>],
        has_row: impl Fn(usize, FunctionId) -> bool,
    ) -> MatchNotes {
        let mut notes = MatchNotes {
            builds: self.builds.clone(),
            ..MatchNotes::default()
        };
        for group in &self.shared {
            let members = group.members.iter();
            let members: Vec<_> = members
                .filter(|member| has_row(member.input, member.id))
                .collect();
            tell(&members, inputs, &mut notes);
        }
        notes
    }
}

/// Adds the notes on functions that share a row.
fn tell(members: &[&Member<'_>], inputs: &[Input<'_>], notes: &mut MatchNotes) {
    let Some(first) = members.first() else {
        return;
    };
    let modules = inputs[first.input].profile.modules();
    let module = || modules.get(first.function.module).label.clone();
    let mut functions = vec![0; inputs.len()];
    for (index, member) in members.iter().enumerate() {
        // A module may have two paths in one profile, and a function then two ids.
        let same = |other: &&Member<'_>| (other.input, other.start) == (member.input, member.start);
        if !members[..index].iter().any(same) {
            functions[member.input] += 1;
        }
    }
    if functions.iter().any(|count| *count > 1) {
        notes.merged.push(Merged {
            module: module(),
            function: first.function.name.clone(),
            functions,
        });
        return;
    }
    let mut files = members
        .iter()
        .filter_map(|member| member.function.file.as_ref());
    if let Some(file) = files.next()
        && let Some(other) = files.find(|other| *other != file)
    {
        notes.other_files.push(OtherFile {
            module: module(),
            function: first.function.name.clone(),
            files: (file.clone(), other.clone()),
        });
    }
}

/// Returns the build of a module, and an address in it that does not depend on where the module lies in memory.
fn build_of<'a>(
    profile: &Profile,
    module: &'a Module,
    start: Option<u64>,
) -> (Build<'a>, Option<u64>) {
    let known = module.build_id.as_deref().map_or(Build::Unknown, Build::Id);
    if module.kind != ModuleKind::Kernel {
        return (known, start);
    }
    // The kernel and its modules lie elsewhere in memory after each start of the machine.
    let reference = profile.recorded_kernel().reference_symbol.as_ref();
    match (reference, module.label == KERNEL) {
        (Some((_, base)), true) => (known, start.map(|start| start.wrapping_sub(base.0))),
        _ => (Build::Unknown, start),
    }
}

/// Returns the names of modules whose builds differ between profiles.
fn other_builds(inputs: &[Input<'_>], modules: &[Vec<usize>]) -> Vec<String> {
    let mut first: HashMap<usize, (&[u8], usize, ModuleId)> = HashMap::new();
    let mut other: Vec<(usize, &str)> = Vec::new();
    for (place, input) in inputs.iter().enumerate() {
        let mut has_functions = vec![false; input.profile.modules().len()];
        let functions = input.names.functions().iter();
        functions.for_each(|function| has_functions[function.module as usize] = true);
        for (id, module) in (0..).zip(input.profile.modules().iter()) {
            let (Some(build_id), true) = (&module.build_id, has_functions[id as usize]) else {
                continue;
            };
            let number = modules[place][id as usize];
            let (known, in_input, _) = *first.entry(number).or_insert((build_id, place, id));
            if known != &**build_id && in_input != place {
                other.push((number, &module.label));
            }
        }
    }
    other.sort_unstable();
    other.dedup_by_key(|(number, _)| *number);
    other
        .into_iter()
        .map(|(_, label)| label.to_owned())
        .collect()
}

/// The keys that two functions of one name must share to be the same, the most telling key first.
const STAGES: [fn(&Member<'_>) -> Option<MatchKey>; 4] = [
    |one| Some((one.function.link_name, Some(one.function.file.clone()?))),
    |one| Some((0, Some(one.function.file.clone()?))),
    |one| Some((one.function.link_name, None)),
    |_| Some((0, None)),
];

/// Puts functions of one name and module into rows, profile by profile.
fn match_members(members: Vec<Member<'_>>, inputs: usize) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut members = members.into_iter().peekable();
    for input in 0..inputs {
        let mut own: Vec<Member<'_>> = Vec::new();
        while let Some(member) = members.next_if(|member| member.input == input) {
            own.push(member);
        }
        let before = groups.len();
        // First comes the address: the same one in the same build, or in builds that may be the same.
        let mut by_start: HashMap<Option<u64>, Vec<usize>> = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            for known in &group.members {
                by_start.entry(known.start).or_default().push(index);
            }
        }
        own.retain(|member| {
            let same = |known: &Member<'_>| {
                !known.build.is_other(member.build) && known.start == member.start
            };
            let mut rows = by_start.get(&member.start).into_iter().flatten();
            let found = rows.find(|index| groups[**index].members.iter().any(same));
            found
                .map(|index| groups[*index].members.push(member.clone()))
                .is_none()
        });
        for stage in STAGES {
            if own.is_empty() {
                break;
            }
            match_by(stage, &mut own, &mut groups[..before], input);
        }
        // Several functions are left, and several rows that may hold them. Nothing shows which is which, so they
        // become one row.
        let open: Vec<usize> = (0..before)
            .filter(|index| {
                let group = &groups[*index];
                group.is_open(input) && own.iter().any(|member| group.may_hold(member))
            })
            .collect();
        if let Some((first, others)) = open.split_first()
            && !own.is_empty()
        {
            let mut moved = Vec::new();
            for index in others {
                moved.append(&mut groups[*index].members);
            }
            let may_hold = |member: &Member<'_>| groups[*first].may_hold(member);
            let (mut fitting, rest): (Vec<_>, Vec<_>) = own.into_iter().partition(may_hold);
            own = rest;
            let first = &mut groups[*first].members;
            first.append(&mut moved);
            first.append(&mut fitting);
            groups.retain(|group| !group.members.is_empty());
        }
        let mut by_start: HashMap<Option<u64>, Vec<usize>> = HashMap::new();
        for member in own {
            // A module may have two paths in one profile.
            let same = |known: &Member<'_>| known.build.is_same(member.build);
            let rows = by_start.entry(member.start).or_default();
            let found = rows
                .iter()
                .find(|index| groups[**index].members.iter().any(same));
            match found {
                Some(index) => groups[*index].members.push(member),
                None => {
                    rows.push(groups.len());
                    groups.push(Group {
                        members: vec![member],
                    });
                }
            }
        }
    }
    groups
}

/// The key that functions share if they may be the same: a hash of the linker's name, and the source file.
type MatchKey = (u64, Option<Arc<str>>);

/// Puts each function into the only row that shares a key with it, if no other function of its profile has that key.
fn match_by<'a>(
    key: impl Fn(&Member<'a>) -> Option<MatchKey>,
    own: &mut Vec<Member<'a>>,
    groups: &mut [Group<'a>],
    input: usize,
) {
    let mut counts: HashMap<MatchKey, usize> = HashMap::new();
    for key in own.iter().filter_map(&key) {
        *counts.entry(key).or_default() += 1;
    }
    let mut by_key: HashMap<MatchKey, Vec<usize>> = HashMap::new();
    let open = groups.iter().enumerate();
    for (index, group) in open.filter(|(_, group)| group.is_open(input)) {
        for key in group.members.iter().filter_map(&key) {
            let rows = by_key.entry(key).or_default();
            // The functions of a row share most keys, and each row is listed once.
            if rows.last() != Some(&index) {
                rows.push(index);
            }
        }
    }
    own.retain(|member| {
        let Some(wanted) = key(member).filter(|key| counts[key] == 1) else {
            return true;
        };
        let rows = by_key.get(&wanted).into_iter().flatten();
        let mut fitting = rows.filter(|index| {
            let group = &groups[**index];
            group.is_open(input) && group.may_hold(member)
        });
        match (fitting.next(), fitting.next()) {
            (Some(index), None) => {
                groups[*index].members.push(member.clone());
                false
            }
            _ => true,
        }
    });
}

impl<'a> Group<'a> {
    /// Returns whether the row has no function of a profile yet.
    fn is_open(&self, input: usize) -> bool {
        self.members.iter().all(|member| member.input != input)
    }

    /// Returns whether a function with another address may belong to this row: no member is of the same build.
    fn may_hold(&self, member: &Member<'a>) -> bool {
        let same_build = |known: &Member<'_>| known.build.is_same(member.build);
        !self.members.iter().any(same_build)
    }
}
