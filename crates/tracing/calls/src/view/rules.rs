//! The rules of a view: what a selection leaves out, and the plans of the recording's and the selection's rules.

use super::{ViewError, ViewSelection, ViewWarning};
use crate::FunctionNames;
use crate::recorded::RecordedFunctions;
use dioptra_filters::{
    Compiler, FunctionDescription, FunctionOrigin, MatchStyle, Plan, PlanOptions, RuleOption,
    Rules, SyntaxError,
};
use dioptra_tracedata::{PendingRules, Trace};
use dioptra_tracelayout::{EventPlace, FunctionKind};
use thiserror::Error;

/// The reason why the rules that a recording has left to readers cannot be applied.
#[derive(Debug, Error)]
pub enum PendingError {
    /// The trace names no known way to match names.
    #[error("`{0}` is no way to match names")]
    Style(String),
    /// The trace names an unknown option.
    #[error("`{0}` is no option")]
    Option(String),
    /// A rule is not understood.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The rules can't be followed.
    #[error(transparent)]
    Rules(#[from] ViewError),
}

/// Returns, by id, the functions that a selection leaves out; empty if it leaves out none.
pub(super) fn left_out(trace: &Trace, selection: &ViewSelection) -> Vec<bool> {
    let scheduling = selection.scheduling;
    let left_out = |id: usize| {
        let entry = trace.function(id as u32);
        match entry.as_event() {
            Some(EventPlace::Schedule | EventPlace::ScheduleTracer) => !scheduling.waits,
            Some(EventPlace::SchedulePreempted) => !scheduling.preemptions,
            // Events that are not selected do not appear at all.
            Some(_) => false,
            None => selection.no_libcall && entry.kind == FunctionKind::LibraryCall,
        }
    };
    let functions: Vec<bool> = (0..trace.function_count()).map(left_out).collect();
    match functions.contains(&true) {
        true => functions,
        false => Vec::new(),
    }
}

/// Parses the rules that a recording has left to readers.
pub(super) fn pending_rules(pending: &PendingRules) -> Result<Rules, PendingError> {
    const OPTIONS: [RuleOption; 9] = [
        RuleOption::Filter,
        RuleOption::Notrace,
        RuleOption::Trigger,
        RuleOption::Caller,
        RuleOption::Hide,
        RuleOption::Depth,
        RuleOption::Time,
        RuleOption::Size,
        RuleOption::Location,
    ];
    let style = MatchStyle::parse(&pending.style)
        .ok_or_else(|| PendingError::Style(pending.style.clone()))?;
    let mut rules = Rules::new(style);
    for rule in &pending.rules {
        let option = OPTIONS.into_iter().find(|o| o.letter() == rule.option);
        let option = option.ok_or_else(|| PendingError::Option(rule.option.clone()))?;
        rules.add(option, &rule.text)?;
    }
    Ok(rules)
}

/// Makes the plan of rules for the functions of a trace, and adds warnings about rules that match nothing. `recorded` are
/// the functions that the recording sampled, for rules that it has left to readers.
pub(super) fn compile(
    names: &FunctionNames<'_>,
    rules: &Rules,
    recorded: Option<&RecordedFunctions>,
    with_sources: bool,
    seed: u64,
    warnings: &mut Vec<ViewWarning>,
) -> Result<Plan, ViewError> {
    let trace = names.trace();
    let options = PlanOptions {
        seed,
        // Rules of a recording may adapt to its cost. Those that are left to readers are shown in full.
        replay: recorded.is_none(),
        ..PlanOptions::default()
    };
    let mut compiler = Compiler::new(rules.clone(), options)?;
    let ids: Vec<u32> = (0..trace.function_count() as u32).collect();
    let sources = match with_sources {
        true => names.sources(&ids),
        false => Vec::new(),
    };
    let mut known = Vec::with_capacity(ids.len());
    for id in ids {
        let entry = trace.function(id);
        let (name, linkage) = match entry.kind {
            // The numbers must stay the ids.
            FunctionKind::None => ("".into(), None),
            _ => names.linkage(id),
        };
        compiler.add(&FunctionDescription {
            name: &name,
            linkage: linkage.as_deref(),
            module: names.module_path(&entry),
            kind: match entry.kind {
                FunctionKind::LibraryCall => FunctionOrigin::LibraryCall,
                _ => FunctionOrigin::Code,
            },
            size: names.size(id),
            source: sources
                .get(id as usize)
                .and_then(|source| Some(source.as_ref()?.0.as_str())),
            is_chosen: recorded.is_some_and(|recorded| recorded.get(id).is_some()),
        });
        if entry.kind != FunctionKind::None {
            known.push(name);
        }
    }
    let told = compiler.warnings(known.iter().map(|name| &**name));
    warnings.extend(told.into_iter().map(ViewWarning::Rule));
    Ok(compiler.plan())
}
