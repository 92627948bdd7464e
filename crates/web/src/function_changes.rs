//! The counts that a function's lines and instructions have in another profile.
//!
//! The other profile may be of another build. Functions are those that `dioptra diff` compares, lines are matched by file
//! and number, and instructions only where the code is the same byte for byte.

use crate::api::{FunctionOther, OtherEvent, OtherInstructions, OtherLines};
use crate::failure::Failure;
use crate::functions::counted;
use crate::jobs::Ticket;
use crate::other::{Other, both};
use crate::selected::Selected;
use dioptra_profile::{FunctionId, ModuleId};
use dioptra_report::{
    AddressCount, AnnotateOptions, AnnotatedLine, Annotation, annotate, function_with_id,
    same_functions_of,
};
use dioptra_tables::{Facts, Severity};
use hashbrown::HashMap;
use serde_json::json;
use std::sync::Arc;

/// A function of the first profile, annotated.
pub(crate) struct First<'a> {
    pub selected: &'a Selected,
    pub function: FunctionId,
    pub module: ModuleId,
    pub annotation: &'a Annotation,
    pub options: &'a AnnotateOptions,
}

/// A source line as both profiles name it.
type LineKey<'a> = (Option<&'a str>, Option<u32>);

impl First<'_> {
    /// Finds the function in the other profile, and its counts there.
    pub(crate) fn compare(
        &self,
        other: &Other,
        ticket: &Ticket,
    ) -> Result<(FunctionOther, Facts), Failure> {
        let there = &other.selected;
        let mut facts = other.facts.clone();
        let same = same_functions_of(&[self.selected.input(), there.input()], self.function);
        ticket.check()?;
        // By event of the first profile: its place among the events of the other one.
        let matched = both(&self.selected.profile, &there.profile);
        let events = self.selected.events.iter().map(|event| {
            let found = matched.iter().find(|both| both.of[0] == Some(*event))?.of[1]?;
            there.events.iter().position(|known| *known == found)
        });
        let events: Vec<Option<usize>> = events.collect();
        let options = AnnotateOptions {
            events: Some(there.events.clone()),
            ..self.options.clone()
        };
        let named = there.named();
        let mut annotations: Vec<(Annotation, ModuleId)> = Vec::new();
        for id in &same {
            ticket.check()?;
            let symbolizer = &there.loaded.symbolizer;
            let found = function_with_id(&there.profile, &named.names, symbolizer, *id);
            let Some(found) = found else { continue };
            let names = &named.names;
            let annotation = annotate(&there.profile, names, symbolizer, &found, &options);
            annotations.push((annotation, found.module));
        }
        let of_event = |counts: &[AddressCount], event: &Option<usize>| -> AddressCount {
            let count = event.and_then(|event| counts.get(event));
            count.copied().unwrap_or_default()
        };
        let answer_events = events.iter().map(|event| {
            let place = (*event)?;
            let index = there.events[place];
            let all = &there.profile.events()[index];
            let mut own = AddressCount::default();
            for (annotation, _) in &annotations {
                if let Some(event) = annotation.events.get(place) {
                    own.add(event.function);
                }
            }
            Some(OtherEvent {
                total: counted(AddressCount {
                    count: all.total(),
                    estimate: all.total_estimate(),
                }),
                own: counted(own),
            })
        });
        let answer_events: Vec<Option<OtherEvent>> = answer_events.collect();
        if annotations.is_empty() {
            facts.add(
                Severity::Warning,
                "function_not_in_other",
                format!("{} has no samples of this function", there.loaded.path),
                json!(there.loaded.index),
            );
        }
        let is_one_build = self.is_one_build(there, annotations.first().map(|(_, module)| *module));
        let (instructions, why) = match &annotations[..] {
            [] => (None, None),
            [(annotation, _)] => match self.differs(annotation, is_one_build) {
                None => (Some(self.instructions(annotation, &events, of_event)), None),
                Some(why) => (None, Some(why)),
            },
            several => {
                let why = format!("{} functions of this name are there", several.len());
                (None, Some(why))
            }
        };
        if !is_one_build && !annotations.is_empty() {
            facts.add(
                Severity::Warning,
                "lines_matched_by_number",
                "the two recordings are of different builds: lines are matched by file and number, and where the source was changed between the builds they are other lines",
                json!(there.loaded.index),
            );
        }
        let lines = self.lines(&annotations, &events, of_event);
        let answer = FunctionOther {
            profile: there.loaded.index,
            generation: there.loaded.generation,
            functions: annotations.len(),
            events: answer_events,
            lines,
            instructions,
            instructions_why: why,
        };
        Ok((answer, facts))
    }

    /// Whether both modules have the same build id.
    fn is_one_build(&self, there: &Selected, module: Option<ModuleId>) -> bool {
        let here = self.selected.profile.modules().get(self.module);
        let there = module.map(|module| there.profile.modules().get(module));
        here.build_id.is_some() && there.is_some_and(|there| there.build_id == here.build_id)
    }

    /// Why instructions cannot be compared; `None` if they can.
    fn differs(&self, there: &Annotation, is_one_build: bool) -> Option<String> {
        let here = self.annotation;
        match (here.has_code, there.has_code) {
            // Without code the places are addresses that have samples.
            _ if is_one_build => None,
            (true, true) => {
                let (own, other) = (here.places.len(), there.places.len());
                let code = |annotation: &Annotation| {
                    let bytes = annotation.places.iter().map(|place| place.bytes.clone());
                    bytes.collect::<Vec<_>>()
                };
                match own == other && code(here) == code(there) {
                    true => None,
                    false if own == other => Some(format!(
                        "its code is another one there, although it has {other} instructions, too"
                    )),
                    false => Some(format!(
                        "its code is another one there: {other} instructions instead of {own}"
                    )),
                }
            }
            _ => Some(
                "nothing shows that its code is the same there: neither a build id nor the bytes"
                    .to_owned(),
            ),
        }
    }

    fn instructions(
        &self,
        there: &Annotation,
        events: &[Option<usize>],
        of_event: impl Fn(&[AddressCount], &Option<usize>) -> AddressCount,
    ) -> OtherInstructions {
        let start =
            |annotation: &Annotation| annotation.addresses.as_ref().map_or(0, |of| of.start);
        let from_start =
            |annotation: &Annotation, address: u64| address.wrapping_sub(start(annotation));
        let counts: HashMap<u64, &[AddressCount]> = there
            .places
            .iter()
            .map(|place| (from_start(there, place.address), &place.counts[..]))
            .collect();
        let mut out = OtherInstructions::default();
        for event in events {
            let each = self.annotation.places.iter().map(|place| {
                let found = counts.get(&from_start(self.annotation, place.address));
                found.map_or(AddressCount::default(), |counts| of_event(counts, event))
            });
            let each: Vec<AddressCount> = each.collect();
            out.samples
                .push(each.iter().map(|of| of.count.samples).collect());
            out.weight
                .push(each.iter().map(|of| of.count.weight).collect());
        }
        out
    }

    fn lines(
        &self,
        there: &[(Annotation, ModuleId)],
        events: &[Option<usize>],
        of_event: impl Fn(&[AddressCount], &Option<usize>) -> AddressCount,
    ) -> OtherLines {
        let here = &self.annotation.lines;
        let other_lines = || there.iter().flat_map(|(annotation, _)| &annotation.lines);
        let renamed = renamed(here, other_lines());
        let mut places: HashMap<LineKey<'_>, usize> = HashMap::new();
        for (place, line) in here.iter().enumerate() {
            places.insert((line.file.as_deref(), line.line), place);
        }
        let zero = || vec![vec![0_u64; here.len()]; events.len()];
        let mut out = OtherLines {
            samples: zero(),
            weight: zero(),
            outer_samples: zero(),
            outer_weight: zero(),
            only_there_samples: vec![0; events.len()],
            only_there_weight: vec![0; events.len()],
        };
        for line in other_lines() {
            let file = line.file.as_deref();
            let file = file.map(|file| renamed.get(file).map_or(file, |file| &**file));
            let place = places.get(&(file, line.line));
            for (at, event) in events.iter().enumerate() {
                let inner = of_event(&line.innermost, event).count;
                let outer = of_event(&line.outermost, event).count;
                let Some(place) = place else {
                    out.only_there_samples[at] += inner.samples;
                    out.only_there_weight[at] += inner.weight;
                    continue;
                };
                out.samples[at][*place] += inner.samples;
                out.weight[at][*place] += inner.weight;
                out.outer_samples[at][*place] += outer.samples;
                out.outer_weight[at][*place] += outer.weight;
            }
        }
        out
    }
}

/// The files of the first profile that stand for files of the other one which it lacks: builds in different folders name
/// one file differently, so that a file's own name decides where only one file of each profile has it.
fn renamed<'a>(
    here: &'a [AnnotatedLine],
    there: impl Iterator<Item = &'a AnnotatedLine>,
) -> HashMap<&'a str, Arc<str>> {
    let name = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
    let mut own: HashMap<&str, Vec<&Arc<str>>> = HashMap::new();
    for file in here.iter().filter_map(|line| line.file.as_ref()) {
        let of_name = own.entry(name(file)).or_default();
        if !of_name.contains(&file) {
            of_name.push(file);
        }
    }
    let mut others: HashMap<&str, Vec<&str>> = HashMap::new();
    for file in there.filter_map(|line| line.file.as_deref()) {
        let of_name = others.entry(name(file)).or_default();
        if !of_name.contains(&file) {
            of_name.push(file);
        }
    }
    let pairs = others.into_iter().filter_map(|(name, files)| {
        match (own.get(name).map(Vec::as_slice), &files[..]) {
            (Some([own]), [other]) if &***own != *other => Some((*other, Arc::clone(own))),
            _ => None,
        }
    });
    pairs.collect()
}
