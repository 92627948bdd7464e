//! The choice of functions by name, size and source file: no function is patched that the user's rules can do without.

use super::patterns::{PatchMatcher, PatchPatterns, Patching, RefusedFunction, Unpatched};
use super::selector::{FunctionPlace, Gating, ModuleIdentity, Selector};
use super::typed;
use super::values::FunctionValues;
use super::warnings::SelectionWarning;
use crate::recording::notes::TraceNote;
use dioptra_filters::{
    CompileError, Compiler, FunctionDescription, FunctionOrigin, MatchStyle, PlanOptions, Probe,
    RuleOption, Rules, SampleKind, Sampling, SyntaxError, ValueRequest, parse_time,
};
use dioptra_symbols::{
    FunctionSignature, LineReader, ModuleKind, ModuleRequest, RelativeAddress, SymbolOptions,
    Symbolizer, demangle, place_name,
};
use dioptra_tracelayout::LIBRARY_CALL_SIZE;
use dioptra_tracelayout::message::Method;
use dioptra_tracelayout::sampling::{SLOTS, TAILS};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;

/// The modules whose calls of other modules' functions are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LibraryCalls {
    /// No module.
    None,
    /// The program.
    #[default]
    OfProgram,
    /// The program and all libraries.
    OfAll,
}

/// The user's wishes.
#[derive(Clone, Debug)]
pub struct Choice {
    /// `-P` and `-U`. Without any `-P`, functions that a compiler has prepared are traced, and all functions of a
    /// program without such ones. With `-P`, functions that call `mcount` or `__cyg_profile_func_enter` are traced as
    /// before, and other functions only if a pattern names them.
    pub patches: PatchPatterns,
    /// Filters and triggers: options and their texts.
    pub rules: Vec<(RuleOption, String)>,
    /// The syntax of the rules' patterns.
    pub style: MatchStyle,
    /// The modules whose calls of other modules' functions are traced.
    pub library_calls: LibraryCalls,
    /// Whether functions without values of their own are recorded with the values that their declared types ask for.
    pub typed_values: bool,
}

/// A selector that follows rules.
///
/// Names are read only if the rules need them, and debug information only if they ask for source files, so that plain
/// tracing starts fast.
#[derive(Debug)]
pub struct RuleSelector {
    choice: Choice,
    gating: Gating,
    has_rules: bool,
    with_sources: bool,
    matcher: PatchMatcher,
    compiler: Compiler,
    symbolizer: Symbolizer,
    /// Names that were seen. The nearest ones are shown for a misspelt name.
    names: Vec<String>,
    notes: Vec<TraceNote>,
    /// The values that are recorded of the functions that were chosen last.
    values: Vec<Option<Arc<FunctionValues>>>,
    /// Whether more functions are sampled than can be counted; noted once.
    exceeds_slots: bool,
    /// Whether readers judge calls of a function alone; noted once.
    judges_alone: bool,
    /// Programs of which all functions are traced because no compiler has prepared any.
    uninstrumented: Vec<String>,
    /// The reasons why functions that were asked for are not patched.
    unpatched: Unpatched,
}

/// The reason why there can be no selector.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A text is not understood.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The rules can't be followed.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Returns the conditions under which hooks leave calls out while the program runs. Readers apply the same rules to the
/// trace, and show the same as if everything had been recorded.
fn gating(choice: &Choice, rules: &Rules, compiler: &Compiler) -> Gating {
    let mut levels = None;
    let mut at_least = None;
    for (option, text) in &choice.rules {
        match option {
            RuleOption::Depth => levels = text.trim().parse().ok(),
            RuleOption::Time => at_least = parse_time(text.trim()).ok(),
            _ => {}
        }
    }
    let by_place = rules.beyond_places().is_none();
    let plan = compiler.plan();
    Gating {
        opt_in: plan.lets_in(),
        mutes: plan.mutes(),
        // Readers count levels in the same way only if each recorded call takes one.
        levels: levels.filter(|levels| *levels < u16::MAX && by_place),
        // Triggers may set other durations.
        at_least: at_least.filter(|time| *time > 0 && by_place && !rules.set_durations()),
        samples: rules.sample() && rules.beyond_counting().is_none(),
        values: choice.typed_values || rules.ask_for_values(),
    }
}

/// Adds the values that declared types ask for to those of functions that have none. `chosen` are the functions with
/// their probes, in the order of `values`.
fn add_typed<'f>(
    reader: &LineReader<'_>,
    chosen: impl Iterator<Item = ((&'f Named<'f>, &'f FunctionPlace<'f>), &'f Probe)>,
    values: &mut [Option<Arc<FunctionValues>>],
) {
    let mut known: HashMap<FunctionSignature, Option<Arc<FunctionValues>>> = HashMap::new();
    for (((named, place), probe), values) in chosen.zip(values) {
        let is_code = !place.method.finds_library_calls();
        if values.is_some() || *probe == Probe::Skip || !is_code || named.is_changed_copy() {
            continue;
        }
        let Some(signature) = reader.signature(RelativeAddress(place.offset)) else {
            continue;
        };
        let same = known.entry(signature);
        *values = same
            .or_insert_with_key(|signature| typed::values(signature).map(Arc::new))
            .clone();
    }
}

/// The properties of a function that rules ask for.
struct Named<'a> {
    full: Cow<'a, str>,
    linkage: Option<Cow<'a, str>>,
    size: Option<u64>,
    source: Option<String>,
}

impl Named<'_> {
    /// Returns whether the function is a copy whose parameters the compiler may have changed.
    fn is_changed_copy(&self) -> bool {
        const MARKS: [&str; 3] = [".isra.", ".constprop.", ".part."];
        let name = self.linkage.as_ref().unwrap_or(&self.full);
        MARKS.iter().any(|mark| name.contains(mark))
    }
}

impl RuleSelector {
    /// Makes a selector for a choice.
    ///
    /// # Errors
    /// [`RuleError`] for rules that are not understood or can't be followed.
    pub fn new(choice: Choice) -> Result<RuleSelector, RuleError> {
        let mut rules = Rules::new(choice.style);
        for (option, text) in &choice.rules {
            rules.add(*option, text)?;
        }
        let has_rules = !rules.is_empty();
        let mut notes: Vec<TraceNote> = rules.notes().into_iter().map(TraceNote::Rule).collect();
        if let Some(words) = rules.beyond_counting().filter(|_| rules.sample()) {
            notes.push(TraceNote::SampledLater { words });
        }
        let compiler = Compiler::new(rules.clone(), PlanOptions::default())?;
        let is_place = |(option, _): &(RuleOption, String)| *option == RuleOption::Location;
        Ok(RuleSelector {
            gating: gating(&choice, &rules, &compiler),
            exceeds_slots: false,
            judges_alone: false,
            has_rules,
            with_sources: choice.rules.iter().any(is_place),
            notes,
            matcher: choice.patches.matcher()?,
            compiler,
            symbolizer: Symbolizer::new(SymbolOptions::default()),
            names: Vec::new(),
            values: Vec::new(),
            uninstrumented: Vec::new(),
            unpatched: Unpatched::default(),
            choice,
        })
    }

    /// Returns whether functions of the module that no compiler prepared are traced without being named.
    fn all_plain(&self, module: &ModuleIdentity) -> bool {
        module.is_program && !module.is_instrumented && !self.choice.patches.any_wanted()
    }

    fn is_wanted(&self, patching: Patching, method: Method, all_plain: bool) -> bool {
        match (patching, method) {
            (Patching::Unwanted, _) => false,
            (Patching::Wanted, _) => true,
            (Patching::Unnamed, method) if method.finds_library_calls() => true,
            (Patching::Unnamed, Method::Plain) => all_plain,
            // These call the tracer in any case: patterns of `-P` add to them, as in uftrace.
            (Patching::Unnamed, Method::Mcount | Method::Cygprof) => true,
            // `-P` chooses among functions with space for a hook.
            (Patching::Unnamed, _) => !self.choice.patches.any_wanted(),
        }
    }
}

impl Selector for RuleSelector {
    fn plain(&mut self, module: &ModuleIdentity) -> bool {
        self.unpatched.see(module);
        let all = self.all_plain(module);
        if all {
            self.uninstrumented.push(module.path.display().to_string());
        }
        all || self.choice.patches.may_want(module)
    }

    fn library_calls(&mut self, module: &ModuleIdentity) -> bool {
        match self.choice.library_calls {
            LibraryCalls::None => false,
            LibraryCalls::OfProgram => module.is_program,
            LibraryCalls::OfAll => true,
        }
    }

    fn choose(&mut self, module: &ModuleIdentity, functions: &[FunctionPlace<'_>]) -> Vec<Probe> {
        let all_plain = self.all_plain(module);
        let typed = self.choice.typed_values;
        let by_name = typed || self.has_rules || self.choice.patches.needs_names();
        if !by_name {
            // `-P .` of one module must not patch functions of another module that happen to be candidates.
            let patching = match self.choice.patches.may_want(module) {
                true => Patching::Wanted,
                false => Patching::Unnamed,
            };
            return functions
                .iter()
                .map(
                    |place| match self.is_wanted(patching, place.method, all_plain) {
                        true => Probe::Record,
                        false => Probe::Skip,
                    },
                )
                .collect();
        }

        let request = ModuleRequest {
            kind: ModuleKind::File,
            path: &module.readable,
            build_id: Some(module.build_id.as_slice()).filter(|id| !id.is_empty()),
        };
        let offsets = functions.iter().map(|place| RelativeAddress(place.offset));
        let symbols = self.symbolizer.load_for(&request, offsets);
        let lines = (typed || self.with_sources).then(|| self.symbolizer.lines(&request));
        let reader = lines.as_ref().map(|lines| lines.reader());
        let file = module.file_name();
        let named: Vec<Named<'_>> = functions
            .iter()
            .map(|place| {
                if let Some(name) = place.name {
                    let full = demangle(name);
                    return Named {
                        linkage: (full != name).then_some(Cow::Borrowed(name)),
                        full,
                        size: Some(LIBRARY_CALL_SIZE),
                        source: None,
                    };
                }
                let address = RelativeAddress(place.offset);
                let symbol = symbols.function(address);
                let size = match (place.size, &symbol) {
                    (0, Some(symbol)) => symbol.size,
                    (size, _) => size,
                };
                let reader = reader.as_ref().filter(|_| self.with_sources);
                let source = reader.and_then(|reader| {
                    // The outermost frame is the function's. Code that is inlined at the very start has inner frames.
                    let frame = reader.frames(address).pop()?;
                    Some(frame.file?.to_string())
                });
                let (full, linkage) = match symbol {
                    Some(symbol) => (symbol.name, Some(Cow::Borrowed(symbol.raw_name))),
                    // Readers match the same rules, and name the function in the same way.
                    None => (Cow::Owned(place_name(&file, address)), None),
                };
                Named {
                    linkage: linkage.filter(|raw| *raw != full),
                    full,
                    size: Some(size).filter(|size| *size > 0),
                    source,
                }
            })
            .collect();
        let path = module.path.to_string_lossy();
        let questions = || {
            named
                .iter()
                .zip(functions)
                .map(|(named, place)| FunctionDescription {
                    name: &named.full,
                    linkage: named.linkage.as_deref(),
                    module: &path,
                    kind: match place.method {
                        method if method.finds_library_calls() => FunctionOrigin::LibraryCall,
                        _ => FunctionOrigin::Code,
                    },
                    size: named.size,
                    source: named.source.as_deref(),
                    is_chosen: false,
                })
        };
        let samples = self.gating.samples;
        let patching = self.matcher.answer(questions());
        let mut known: HashMap<Vec<ValueRequest>, Arc<FunctionValues>> = HashMap::new();
        let mut values = Vec::new();
        let actions: Vec<u32> = questions()
            .map(|function| {
                let action = self.compiler.add(&function);
                if self.gating.values {
                    let asked = self.compiler.values();
                    values.push(match known.get(asked) {
                        Some(same) => Some(Arc::clone(same)),
                        None => FunctionValues::of(asked).map(|values| {
                            let values = Arc::new(values);
                            known.insert(asked.to_vec(), Arc::clone(&values));
                            values
                        }),
                    });
                }
                action
            })
            .collect();
        let plan = self.compiler.plan();
        let mut exceeds_slots = false;
        let mut judges_alone = false;
        let probes: Vec<Probe> = patching
            .iter()
            .zip(functions)
            .zip(&actions)
            .map(|((patching, place), action)| {
                if *patching == Patching::Unwanted {
                    return Probe::Skip;
                }
                let mut probe = plan.probe(*action);
                let is_tail = |sampling: Sampling| sampling.kind == SampleKind::Tail;
                judges_alone |= plan.sampling(*action).is_some_and(is_tail)
                    && !matches!(probe, Probe::JudgeFilter(_));
                if samples && let Some(sampling) = probe.sampling() {
                    let has_slot = (sampling.slot as usize) < SLOTS;
                    let has_tail = !is_tail(sampling) || (sampling.tail as usize) < TAILS;
                    exceeds_slots |= !(has_slot && has_tail);
                    if !(has_slot && has_tail) {
                        probe = probe.unsampled();
                    }
                } else {
                    probe = probe.unsampled();
                }
                match probe {
                    Probe::Timed if self.gating.at_least.is_none() => probe = Probe::Record,
                    // A function that hides or admits calls is hooked even where it is not to be recorded itself.
                    Probe::Mute
                    | Probe::Filter
                    | Probe::SampleFilter(_)
                    | Probe::JudgeFilter(_) => {
                        return probe;
                    }
                    _ => {}
                }
                match self.is_wanted(*patching, place.method, all_plain) {
                    true => probe,
                    false => Probe::Skip,
                }
            })
            .collect();
        if let Some(reader) = reader.as_ref().filter(|_| typed) {
            let chosen = named.iter().zip(functions).zip(&probes);
            add_typed(reader, chosen, &mut values);
        }
        self.values = values;
        self.names
            .extend(named.into_iter().map(|named| named.full.into_owned()));
        if exceeds_slots && !self.exceeds_slots {
            self.exceeds_slots = true;
            self.notes.push(TraceNote::TooManySampled {
                functions: SLOTS,
                tails: TAILS,
            });
        }
        if judges_alone && !self.judges_alone {
            self.judges_alone = true;
            self.notes.push(TraceNote::JudgedLater);
        }
        probes
    }

    fn take_values(&mut self) -> Vec<Option<Arc<FunctionValues>>> {
        std::mem::take(&mut self.values)
    }

    fn refuse(&mut self, module: &ModuleIdentity, functions: &[(u64, &'static str)]) {
        if !self.choice.patches.needs_names() || !self.choice.patches.may_want(module) {
            return;
        }
        let request = ModuleRequest {
            kind: ModuleKind::File,
            path: &module.readable,
            build_id: Some(module.build_id.as_slice()).filter(|id| !id.is_empty()),
        };
        let addresses = functions.iter().map(|(offset, _)| RelativeAddress(*offset));
        let symbols = self.symbolizer.load_for(&request, addresses);
        for (offset, reason) in functions {
            let address = RelativeAddress(*offset);
            let symbol = symbols.function(address);
            let linkage = symbol.as_ref().map(|symbol| symbol.raw_name.to_owned());
            let name = match symbol {
                Some(symbol) => symbol.name.into_owned(),
                None => place_name(&module.file_name(), address),
            };
            let linkage = linkage.filter(|raw| *raw != name);
            self.unpatched.refuse(RefusedFunction {
                name,
                linkage,
                module: module.clone(),
                reason,
            });
        }
    }

    fn leave_alone(&mut self, module: &ModuleIdentity) {
        self.unpatched.leave_alone(module);
    }

    fn gating(&self) -> Gating {
        self.gating
    }

    fn take_notes(&mut self) -> Vec<TraceNote> {
        std::mem::take(&mut self.notes)
    }

    fn warnings(&mut self) -> Vec<SelectionWarning> {
        let mut warnings = Vec::new();
        if !self.uninstrumented.is_empty() {
            let programs = self.uninstrumented.clone();
            warnings.push(SelectionWarning::NotInstrumented { programs });
        }
        warnings.extend(
            self.unpatched
                .warnings(&self.choice.patches, &self.matcher, &self.names),
        );
        let names = self.names.iter().map(String::as_str);
        let of_rules = self.compiler.warnings(names).into_iter();
        warnings.extend(of_rules.map(SelectionWarning::Rule));
        warnings
    }
}
