//! The functions that a text of the user means.

use crate::FunctionNames;
use dioptra_filters::{
    Compiler, FunctionDescription, MatchStyle, NameForms, PlanOptions, RuleOption, Rules, Warning,
};

impl FunctionNames<'_> {
    /// Returns, by id, whether a text means a function: a displayed name, a name as the programmer wrote it or as the
    /// symbol table has it; or, in another style than [`MatchStyle::Simple`], a pattern.
    pub fn matching(&self, text: &str, style: MatchStyle) -> Vec<bool> {
        let count = self.trace().function_count() as u32;
        if style == MatchStyle::Simple {
            return (0..count)
                .map(|id| {
                    if self.get(id) == text {
                        return true;
                    }
                    let (name, linkage) = self.linkage(id);
                    NameForms::new(&name, linkage.as_deref()).is_named(text)
                })
                .collect();
        }
        self.compiled(text, style).0
    }

    /// Returns the names of functions near to `text`, the nearest first.
    pub fn nearest(&self, text: &str) -> Vec<String> {
        let (_, warnings) = self.compiled(text, MatchStyle::Simple);
        let nearest = warnings.into_iter().find_map(|warning| match warning {
            Warning::NoFunction { nearest, .. } => Some(nearest),
            _ => None,
        });
        nearest.unwrap_or_default()
    }

    fn compiled(&self, text: &str, style: MatchStyle) -> (Vec<bool>, Vec<Warning>) {
        let count = self.trace().function_count() as u32;
        let none = || (vec![false; count as usize], Vec::new());
        let mut rules = Rules::new(style);
        if rules.add(RuleOption::Hide, text).is_err() {
            return none();
        }
        let Ok(mut compiler) = Compiler::new(rules, PlanOptions::default()) else {
            return none();
        };
        let mut names = Vec::with_capacity(count as usize);
        for id in 0..count {
            let (name, linkage) = self.linkage(id);
            compiler.add(&FunctionDescription {
                name: &name,
                linkage: linkage.as_deref(),
                ..FunctionDescription::default()
            });
            names.push(name);
        }
        let plan = compiler.plan();
        let matching = (0..count).map(|id| plan.action_of(id) != 0).collect();
        (
            matching,
            compiler.warnings(names.iter().map(|name| &**name)),
        )
    }
}
