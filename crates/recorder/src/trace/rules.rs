//! Chooses functions by name, size and source file: no function is patched that the user's rules can do without.

use super::patterns::{PatchMatcher, PatchPatterns, Patching};
use super::select::{FunctionPlace, ModuleIdentity, Selector, SiteVariant};
use dioptra_filters::{
    CompileError, Compiler, Function, FunctionKind, Plan, PlanOptions, Rules, SiteNeed,
};
use dioptra_symbols::{ModuleKind, ModuleRequest, SymbolOptions, Symbolizer, demangle};
use dioptra_tracelayout::message::Method;
use std::borrow::Cow;

/// Whose calls of other modules' functions are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LibraryCalls {
    /// Nobody's.
    None,
    /// The program's.
    #[default]
    OfProgram,
    /// Libraries', too.
    OfAll,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Choice {
    /// `-P` and `-U`. Without any `-P`, functions that a compiler has prepared are traced, and all functions of a
    /// program without such ones.
    pub patches: PatchPatterns,
    /// Filters and triggers.
    pub rules: Rules,
    /// Whether the rules ask for source files.
    pub with_sources: bool,
    /// Whose calls of other modules' functions are traced.
    pub library_calls: LibraryCalls,
}

/// Chooses functions by rules.
///
/// Names are read only if the rules need them, and debug information only if they ask for source files, so that plain
/// tracing starts fast.
#[derive(Debug)]
pub struct RuleSelector {
    choice: Choice,
    matcher: PatchMatcher,
    compiler: Compiler,
    symbolizer: Symbolizer,
    /// Names that were seen, for the nearest ones to a misspelt one.
    names: Vec<String>,
    notes: Vec<String>,
}

/// A function as far as rules ask.
struct Named<'a> {
    full: Cow<'a, str>,
    linkage: Option<Cow<'a, str>>,
    size: Option<u64>,
    source: Option<String>,
}

impl RuleSelector {
    /// Of a choice.
    ///
    /// # Errors
    /// [`CompileError`] for rules that can't be followed.
    pub fn new(choice: Choice) -> Result<RuleSelector, CompileError> {
        Ok(RuleSelector {
            matcher: choice.patches.matcher()?,
            compiler: Compiler::new(choice.rules.clone(), PlanOptions::default())?,
            symbolizer: Symbolizer::new(SymbolOptions::default()),
            names: Vec::new(),
            notes: choice.rules.notes(),
            choice,
        })
    }

    /// Whether functions of the module that no compiler prepared are traced without being named.
    fn all_plain(&self, module: &ModuleIdentity) -> bool {
        module.is_program && !module.is_instrumented && !self.choice.patches.any_wanted()
    }

    fn is_wanted(&self, patching: Patching, method: Method, all_plain: bool) -> bool {
        match (patching, method) {
            (Patching::Unwanted, _) => false,
            (Patching::Wanted, _) | (Patching::Unnamed, Method::Plt) => true,
            (Patching::Unnamed, Method::Plain) => all_plain,
            (Patching::Unnamed, _) => !self.choice.patches.any_wanted(),
        }
    }
}

impl Selector for RuleSelector {
    fn plain(&mut self, module: &ModuleIdentity) -> bool {
        let all = self.all_plain(module);
        if all {
            self.notes.push(format!(
                "{} is not instrumented: its functions are patched in memory, as with -P .",
                module.path.display()
            ));
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

    fn choose(
        &mut self,
        module: &ModuleIdentity,
        functions: &[FunctionPlace<'_>],
    ) -> Vec<SiteVariant> {
        let all_plain = self.all_plain(module);
        let by_name = !self.choice.rules.is_empty() || self.choice.patches.needs_names();
        if !by_name {
            // `-P .` of one module must not patch those of another that happen to be candidates.
            let patching = match self.choice.patches.may_want(module) {
                true => Patching::Wanted,
                false => Patching::Unnamed,
            };
            return functions
                .iter()
                .map(|place| match self.is_wanted(patching, place.method, all_plain) {
                    true => SiteVariant::Record,
                    false => SiteVariant::Skip,
                })
                .collect();
        }

        let request = ModuleRequest {
            kind: ModuleKind::File,
            path: &module.readable,
            build_id: Some(module.build_id.as_slice()).filter(|id| !id.is_empty()),
        };
        let offsets: Vec<u64> = functions.iter().map(|place| place.offset).collect();
        let symbols = self.symbolizer.load_for(&request, &offsets);
        let lines = self
            .choice
            .with_sources
            .then(|| self.symbolizer.lines(&request));
        let reader = lines.as_ref().map(|lines| lines.reader());
        let named: Vec<Named<'_>> = functions
            .iter()
            .map(|place| {
                if let Some(name) = place.name {
                    let full = demangle(name);
                    return Named {
                        linkage: (full != name).then_some(Cow::Borrowed(name)),
                        full,
                        size: None,
                        source: None,
                    };
                }
                let symbol = symbols.function(place.offset);
                let size = match (place.size, &symbol) {
                    (0, Some(symbol)) => symbol.size,
                    (size, _) => size,
                };
                let source = reader.as_ref().and_then(|reader| {
                    // The outermost frame: what is inlined at the very start is not the function.
                    let frame = reader.frames(place.offset).pop()?;
                    Some(frame.file?.to_string())
                });
                let (full, linkage) = match symbol {
                    Some(symbol) => (symbol.name, Some(Cow::Borrowed(symbol.raw_name))),
                    None => (Cow::Borrowed(""), None),
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
            named.iter().zip(functions).map(|(named, place)| Function {
                name: &named.full,
                linkage: named.linkage.as_deref(),
                module: &path,
                kind: match place.method {
                    Method::Plt => FunctionKind::LibraryCall,
                    _ => FunctionKind::Code,
                },
                size: named.size,
                source: named.source.as_deref(),
            })
        };
        let patching = self.matcher.answer(questions());
        let actions: Vec<u32> = questions().map(|f| self.compiler.add(&f)).collect();
        let words = self.compiler.plan();
        let plan = Plan::from_words(&words);
        let variants = patching
            .iter()
            .zip(functions)
            .zip(&actions)
            .map(|((patching, place), action)| {
                let needed = plan
                    .as_ref()
                    .is_ok_and(|plan| plan.site_need(*action) != SiteNeed::Unneeded);
                match needed && self.is_wanted(*patching, place.method, all_plain) {
                    true => SiteVariant::Record,
                    false => SiteVariant::Skip,
                }
            })
            .collect();
        self.names
            .extend(named.into_iter().map(|named| named.full.into_owned()));
        variants
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        // Without names nothing was matched.
        if self.choice.patches.needs_names() || !self.choice.rules.is_empty() {
            warnings = self.matcher.warnings(&self.names);
        }
        let names = self.names.iter().map(String::as_str);
        let told = self.compiler.warnings(names);
        warnings.extend(told.iter().map(ToString::to_string));
        warnings
    }
}
