//! The numbers of a function that come from branch records and memory samples.

use super::build::{Counted, place_at};
use super::model::{Annotation, BranchColumns, MemoryColumn};
use dioptra_instructions::{EdgeEnd, EdgeKind, InstructionKind};
use dioptra_profile::branches::{
    BranchAnalysis, Code, CodeOutline, FunctionAt, LoopAt, OutlineInstruction, OutlineLoop,
    SymbolCode,
};
use dioptra_profile::memory::MemoryPlace;
use dioptra_profile::{ModuleId, Names, Profile};
use dioptra_symbols::{Symbolizer, demangle};
use dioptra_tables::{Severity, escape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The profile and the names from which the numbers are computed.
pub(super) struct Sources<'a> {
    pub profile: &'a Profile,
    pub names: &'a Names,
    pub symbolizer: &'a Symbolizer,
    pub demangle: bool,
}

/// The outlines of functions: the annotated function's as it is shown, all others from their modules.
struct Outlines<'a> {
    module: ModuleId,
    function: Arc<CodeOutline>,
    others: SymbolCode<'a>,
}

impl Code for Outlines<'_> {
    fn function(&self, module: ModuleId, address: u64) -> Option<Arc<CodeOutline>> {
        if module == self.module && self.function.addresses().contains(&address) {
            return Some(Arc::clone(&self.function));
        }
        self.others.function(module, address)
    }
}

/// Returns the annotated function's outline, whose instructions, blocks and loops have the annotation's numbers.
fn outline(annotation: &Annotation) -> Option<CodeOutline> {
    let instructions = annotation.places.iter().map(|place| {
        let kind = place.kind.unwrap_or(InstructionKind::Invalid);
        OutlineInstruction {
            address: place.address,
            flow: kind.into(),
        }
    });
    let blocks = annotation.blocks.iter().map(|block| block.places.clone());
    let loops = annotation.loops.iter().map(|one| OutlineLoop {
        header: one.natural.header,
        blocks: one.blocks.clone(),
        parent: one.natural.parent,
    });
    Some(CodeOutline::new(
        annotation.addresses.clone()?,
        instructions.collect(),
        blocks.collect(),
        loops.collect(),
    ))
}

/// Adds the branch columns of the first event that has branch records.
pub(super) fn add_branches(annotation: &mut Annotation, of: &Sources<'_>, module: ModuleId) {
    let mut events = annotation.events.iter();
    let Some((event, branches)) =
        events.find_map(|event| Some((event, of.profile.branches(event.index)?)))
    else {
        return;
    };
    let Some(outline) = outline(annotation) else {
        return;
    };
    let start = outline.addresses().start;
    let code = Outlines {
        module,
        function: Arc::new(outline),
        others: SymbolCode::new(of.profile.modules(), of.symbolizer),
    };
    let Some(analysis) = BranchAnalysis::new(of.profile, event.index, &code) else {
        return;
    };
    let Some((_, counts)) = analysis.function(module, start) else {
        return;
    };
    let trips = analysis.trips();
    let trips_of = |number| {
        let function = FunctionAt { module, start };
        trips.get(&LoopAt { function, number }).cloned()
    };
    let targets = counts.sites.iter().flat_map(|site| &site.targets);
    let functions: BTreeMap<_, _> = targets
        .map(|edge| {
            let function = &of.names.functions()[of.names.of_frame(edge.to) as usize];
            let name = if of.demangle {
                demangle(&function.name).into_owned()
            } else {
                function.name.clone()
            };
            (edge.to, name)
        })
        .collect();
    let columns = BranchColumns {
        event: event.name.clone(),
        is_exact: branches.is_exact(),
        trips: (0..annotation.loops.len()).map(trips_of).collect(),
        counts,
        functions,
    };
    if columns.counts.impossible > 0 {
        annotation.facts.add(
            Severity::Loss,
            "impossible_runs",
            format!(
                "{} straight runs of the branch records are none that this code can have; the file is probably not the one that ran",
                columns.counts.impossible
            ),
            columns.counts.impossible,
        );
    }
    let (kept, stacks) = analysis.kept_stacks();
    if kept < stacks {
        annotation.facts.add(
            Severity::Info,
            "kept_stacks",
            format!(
                "trips of loops are counted in {kept} of {stacks} branch stacks, chosen at random"
            ),
            kept,
        );
    }
    count_edges(annotation, of.profile, module, &columns);
    annotation.branches = Some(columns);
}

/// Sets the number of executions of each edge.
fn count_edges(
    annotation: &mut Annotation,
    profile: &Profile,
    module: ModuleId,
    columns: &BranchColumns,
) {
    let counts = &columns.counts;
    for edge in &mut annotation.edges {
        let Some(last) = annotation.blocks[edge.from].places.end.checked_sub(1) else {
            continue;
        };
        let site = counts
            .sites
            .binary_search_by_key(&last, |site| site.instruction);
        let site = site.ok().map(|at| &counts.sites[at]);
        edge.executions = match edge.kind {
            // The block ends with a branch, so this edge ran whenever the branch was not taken.
            EdgeKind::FallThrough if site.is_some_and(|site| site.not_taken.is_some()) => {
                site.and_then(|site| site.not_taken)
            }
            EdgeKind::FallThrough | EdgeKind::CallReturn => counts.instructions.get(last).copied(),
            _ => {
                let leads = |frame| {
                    let frame = profile.frames().get(frame);
                    match edge.to {
                        EdgeEnd::Block(block) => {
                            let first = annotation.blocks[block].places.start;
                            frame.module == module
                                && frame.address == annotation.places[first].address
                        }
                        EdgeEnd::Outside(Some(address)) => {
                            frame.module == module && frame.address == address
                        }
                        EdgeEnd::Outside(None) => true,
                    }
                };
                let targets = site.map_or(&[][..], |site| &site.targets);
                let taken = targets
                    .iter()
                    .filter(|target| !target.kind.is_diversion() && leads(target.to));
                let taken = taken.map(|target| target.taken);
                // A jump without a record ran zero times if the function has other records.
                match taken.reduce(|sum, one| sum.plus(one)) {
                    None if !counts.instructions.is_empty() => Some(Default::default()),
                    sum => sum,
                }
            }
        };
    }
}

/// Adds the memory column of the first event that has memory samples.
pub(super) fn add_memory(annotation: &mut Annotation, profile: &Profile, frames: &[Counted<'_>]) {
    let mut events = annotation.events.iter();
    let Some((event, memory)) =
        events.find_map(|event| Some((event, profile.memory(event.index)?)))
    else {
        return;
    };
    let mut places: Vec<Option<MemoryPlace>> = vec![None; annotation.places.len()];
    let mut function = MemoryPlace::default();
    for (frame, address, _) in frames {
        let Some(of_frame) = memory.at(*frame) else {
            continue;
        };
        function.merge(of_frame);
        if let Some(place) = place_at(&annotation.places, *address) {
            places[place].get_or_insert_default().merge(of_frame);
        }
    }
    if function.samples() > 0 {
        let text = told(&event.name, &function);
        annotation
            .facts
            .add(Severity::Info, "memory", text, function.samples());
    }
    annotation.memory = Some(MemoryColumn {
        event: event.name.clone(),
        places,
        function,
    });
}

/// Returns a sentence on a function's memory samples.
fn told(event: &str, function: &MemoryPlace) -> String {
    /// The most sources of data that the sentence names.
    const MOST: usize = 3;
    let mut text = format!("{} memory samples of {}", function.samples(), escape(event));
    let latency = function.latency();
    if let Some(mean) = latency.mean() {
        text += &format!(
            ": latency {mean:.1} cycles, from {} to {}",
            latency.min, latency.max
        );
    }
    let sources = function.sources();
    for (source, latency) in sources
        .iter()
        .filter(|(source, _)| source.0 != 0)
        .take(MOST)
    {
        text += &format!(", {} {}", latency.samples, source.level());
    }
    let lines = function.lines();
    if lines.count > 0.0 {
        let about = if lines.error > 0.0 { "about " } else { "" };
        text += &format!("; {about}{:.0} cache lines", lines.count);
    }
    text
}
