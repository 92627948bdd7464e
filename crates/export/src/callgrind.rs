//! Callgrind's format: costs of instructions and lines, and of the calls between functions.
//!
//! Samples say how often a function was on a stack, not how often it was called: the numbers of calls are numbers of
//! samples. A sample counts once for the total of each function, however often the function is on its stack: the outermost
//! call to the function carries the cost, and recursive calls carry none. Readers that add the costs of the calls to a
//! function thereby get the totals of a table.

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{LostKind, lost};
use crate::sample_values::{SampleValue, sample_values};
use crate::source::Source;
use crate::stack_calls::StackFrame;
use dioptra_profile::{FrameId, FunctionId};
use hashbrown::HashMap;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[
    LostKind::BuildIds,
    LostKind::InlinedMarks,
    LostKind::Threads,
    LostKind::Cpus,
    LostKind::Times,
    LostKind::Branches,
];

/// The name of a file that is not known.
pub(crate) const UNKNOWN_FILE: &str = "???";

/// A line of a function, at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Position {
    function: FunctionId,
    /// The source file's number.
    file: u32,
    frame: FrameId,
    /// The line; 0 where it is not known.
    line: u32,
}

/// The costs at a position: of itself, or of a call to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CostKey {
    position: Position,
    callee: Option<FunctionId>,
}

/// Source files, each once.
#[derive(Default)]
struct Files<'a> {
    names: Vec<&'a str>,
    ids: HashMap<&'a str, u32>,
}

impl<'a> Files<'a> {
    fn id(&mut self, name: &'a str) -> u32 {
        *self.ids.entry(name).or_insert_with(|| {
            self.names.push(name);
            // Each file costs a line id of 32 bits.
            u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// Writes all events in Callgrind's format. Addresses are offsets in the modules' files.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_callgrind(source: &Source<'_>, out: &mut dyn Write) -> Result<Exported, ExportError> {
    source.first_event()?;
    let mut values = sample_values(source);
    // Readers sort by the first event: weights show where time went.
    values.sort_by_key(|value| (value.event, !value.is_weight));
    let costs = Costs::of(source, &values);
    let totals = costs.totals(source, &values);
    Writer {
        source,
        values: &values,
        costs: &costs,
        labels: Labels::new(source),
        objects: vec![false; source.profile.modules().len()],
        files: vec![false; costs.files.names.len()],
        functions: vec![false; source.names.functions().len()],
    }
    .write(out)?;
    Ok(Exported {
        totals,
        lost: lost(source, source.events, NO_PLACE),
    })
}

struct Costs<'a> {
    files: Files<'a>,
    /// By function: its file's number.
    file_of: Vec<Option<u32>>,
    /// The place of each key's values in `sums`.
    places: HashMap<CostKey, usize>,
    /// For each key as many sums as there are values, and the number of samples.
    sums: Vec<u64>,
    width: usize,
}

impl<'a> Costs<'a> {
    fn of(source: &Source<'a>, values: &[SampleValue]) -> Costs<'a> {
        let mut costs = Costs {
            files: Files::default(),
            file_of: vec![None; source.names.functions().len()],
            places: HashMap::new(),
            sums: Vec::new(),
            width: values.len() + 1,
        };
        // Functions without lines have this one.
        costs.files.id(UNKNOWN_FILE);
        let counts = source.stack_counts(source.events);
        let mut positions: Vec<Position> = Vec::new();
        let mut added = vec![0; costs.width];
        let nothing = vec![0; costs.width];
        let mut seen: Vec<FunctionId> = Vec::new();
        for same in counts.chunk_by(|one, other| one.stack == other.stack) {
            positions.clear();
            for frame in source.stack_frames(same[0].stack) {
                costs.positions(source, &frame, &mut positions);
            }
            for (sum, value) in added.iter_mut().zip(values) {
                let of_event = same.iter().filter(|count| count.event == value.event);
                *sum = of_event
                    .map(|count| value.of(count))
                    .fold(0, u64::saturating_add);
            }
            let samples = same.iter().map(|count| count.samples);
            added[values.len()] = samples.fold(0, u64::saturating_add);
            let Some(innermost) = positions.first() else {
                continue;
            };
            costs.add(*innermost, None, &added);
            // The outermost call to each function carries the cost.
            seen.clear();
            seen.extend(positions.last().map(|outermost| outermost.function));
            for pair in positions.windows(2).rev() {
                let (callee, caller) = (pair[0], pair[1]);
                let is_recursion = seen.contains(&callee.function);
                if !is_recursion {
                    seen.push(callee.function);
                }
                let added = if is_recursion { &nothing } else { &added };
                costs.add(caller, Some(callee.function), added);
            }
        }
        costs
    }

    /// Adds the positions of the functions at an address, innermost first.
    fn positions(&mut self, source: &Source<'a>, frame: &StackFrame<'_>, into: &mut Vec<Position>) {
        for (place, function) in frame.functions.iter().enumerate() {
            let line = frame.line(source, place);
            let file = line.map(|(file, _)| self.files.id(file));
            let of_function = &mut self.file_of[*function as usize];
            if of_function.is_none() {
                *of_function = file;
            }
            into.push(Position {
                function: *function,
                file: file.unwrap_or(0),
                frame: frame.frame,
                line: line.and_then(|(_, line)| line).unwrap_or(0),
            });
        }
    }

    fn add(&mut self, position: Position, callee: Option<FunctionId>, added: &[u64]) {
        let next = self.sums.len();
        let place = *self
            .places
            .entry(CostKey { position, callee })
            .or_insert(next);
        if place == next {
            self.sums.resize(next + self.width, 0);
        }
        for (sum, added) in self.sums[place..].iter_mut().zip(added) {
            *sum = sum.saturating_add(*added);
        }
    }

    fn sums(&self, place: usize) -> &[u64] {
        &self.sums[place..place + self.width]
    }

    /// Returns the sums of the costs of functions themselves.
    fn totals(&self, source: &Source<'_>, values: &[SampleValue]) -> Vec<EventTotal> {
        let events = source.events.iter();
        let mut totals: Vec<EventTotal> = events
            .map(|event| EventTotal {
                event: *event,
                ..EventTotal::default()
            })
            .collect();
        for (key, place) in &self.places {
            if key.callee.is_some() {
                continue;
            }
            for (sum, value) in self.sums(*place).iter().zip(values) {
                let total = &mut totals[value.event as usize];
                match value.is_weight {
                    true => total.add_weight(*sum),
                    false => total.add_samples(*sum),
                }
            }
        }
        totals
    }
}

struct Writer<'a, 'c> {
    source: &'a Source<'a>,
    values: &'c [SampleValue],
    costs: &'c Costs<'a>,
    labels: Labels,
    /// The names that were written already, by module, file and function.
    objects: Vec<bool>,
    files: Vec<bool>,
    functions: Vec<bool>,
}

impl Writer<'_, '_> {
    fn write(mut self, out: &mut dyn Write) -> Result<(), ExportError> {
        let costs = self.costs;
        writeln!(out, "# callgrind format\nversion: 1\ncreator: dioptra")?;
        let command = self.source.origin.command_line.join(" ");
        if !command.is_empty() {
            writeln!(out, "cmd: {}", one_line(&command))?;
        }
        writeln!(out, "positions: instr line")?;
        let mut names: Vec<String> = Vec::new();
        for value in self.values {
            let word = |character: char| match character.is_ascii_alphanumeric() {
                true => character,
                false => '_',
            };
            let mut name: String = value.name.chars().map(word).collect();
            while names.contains(&name) {
                name.push('_');
            }
            writeln!(
                out,
                "event: {name} : {} ({})",
                one_line(&value.name),
                value.unit
            )?;
            names.push(name);
        }
        writeln!(out, "events: {}", names.join(" "))?;
        let mut keys: Vec<(CostKey, usize)> = costs
            .places
            .iter()
            .map(|(key, place)| (*key, *place))
            .collect();
        keys.sort_unstable();
        let mut sums = vec![0_u64; self.values.len()];
        for (key, place) in &keys {
            if key.callee.is_none() {
                for (sum, cost) in sums.iter_mut().zip(costs.sums(*place)) {
                    *sum = sum.saturating_add(*cost);
                }
            }
        }
        write!(out, "summary:")?;
        self.costs_line(&sums, out)?;
        for same in keys.chunk_by(|one, other| one.0.position.function == other.0.position.function)
        {
            self.function(same, out)?;
        }
        Ok(())
    }

    /// Writes a function's own costs and those of its calls.
    fn function(
        &mut self,
        keys: &[(CostKey, usize)],
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let function = keys[0].0.position.function;
        let own_file = self.file_of(function);
        let module = self.source.names.functions()[function as usize].module;
        writeln!(out)?;
        self.object("ob", module, out)?;
        self.file("fl", own_file, out)?;
        self.function_name("fn", function, out)?;
        let mut file = own_file;
        for (key, place) in keys {
            let position = key.position;
            // A position without a line belongs to the function's file.
            let wanted = if position.line == 0 {
                own_file
            } else {
                position.file
            };
            if wanted != file {
                let key = if wanted == own_file { "fe" } else { "fi" };
                self.file(key, wanted, out)?;
                file = wanted;
            }
            let costs = self.costs.sums(*place);
            if let Some(callee) = key.callee {
                self.object(
                    "cob",
                    self.source.names.functions()[callee as usize].module,
                    out,
                )?;
                self.file("cfi", self.file_of(callee), out)?;
                self.function_name("cfn", callee, out)?;
                let start = self.source.names.functions()[callee as usize].start;
                writeln!(
                    out,
                    "calls={} {:#x} 0",
                    costs[self.values.len()],
                    start.unwrap_or(0)
                )?;
            }
            let address = self.source.profile.frames().get(position.frame).address;
            write!(out, "{address:#x} {}", position.line)?;
            self.costs_line(costs, out)?;
        }
        Ok(())
    }

    fn costs_line(&self, costs: &[u64], out: &mut dyn Write) -> Result<(), ExportError> {
        for cost in &costs[..self.values.len()] {
            write!(out, " {cost}")?;
        }
        writeln!(out)?;
        Ok(())
    }

    fn file_of(&self, function: FunctionId) -> u32 {
        self.costs.file_of[function as usize].unwrap_or(0)
    }

    fn object(&mut self, key: &str, module: u32, out: &mut dyn Write) -> Result<(), ExportError> {
        let id = u64::from(module) + 1;
        if std::mem::replace(&mut self.objects[module as usize], true) {
            writeln!(out, "{key}=({id})")?;
            return Ok(());
        }
        let module = self.source.profile.modules().get(module);
        let path = String::from_utf8_lossy(&module.path);
        let name = if path.starts_with('/') {
            &*path
        } else {
            &module.label
        };
        writeln!(out, "{key}=({id}) {}", one_line(name))?;
        Ok(())
    }

    fn file(&mut self, key: &str, file: u32, out: &mut dyn Write) -> Result<(), ExportError> {
        let id = u64::from(file) + 1;
        if std::mem::replace(&mut self.files[file as usize], true) {
            writeln!(out, "{key}=({id})")?;
        } else {
            let name = self.costs.files.names[file as usize];
            writeln!(out, "{key}=({id}) {}", one_line(name))?;
        }
        Ok(())
    }

    fn function_name(
        &mut self,
        key: &str,
        function: FunctionId,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let id = u64::from(function) + 1;
        if std::mem::replace(&mut self.functions[function as usize], true) {
            writeln!(out, "{key}=({id})")?;
        } else {
            let name = self.labels.of(self.source, function);
            writeln!(out, "{key}=({id}) {}", one_line(name))?;
        }
        Ok(())
    }
}

/// Returns a text without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
