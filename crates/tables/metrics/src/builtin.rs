//! The sets that dioptra ships.

use std::sync::OnceLock;

use crate::cpu::CpuId;
use crate::set::MetricSet;

/// A set that comes with the program.
#[derive(Debug)]
pub struct Builtin {
    /// For `--metrics NAME`.
    pub name: &'static str,
    text: &'static str,
    set: OnceLock<MetricSet>,
}

impl Builtin {
    const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            set: OnceLock::new(),
        }
    }

    /// The set; read at the first use.
    pub fn set(&self) -> &MetricSet {
        self.set.get_or_init(|| {
            MetricSet::from_toml(self.name, self.text)
                .unwrap_or_else(|e| unreachable!("a test reads every shipped file: {e}"))
        })
    }
}

macro_rules! builtins {
    ($($name:literal),* $(,)?) => {
        static BUILTINS: [Builtin; 14] = [
            $(Builtin::new($name, include_str!(concat!("../data/", $name, ".toml")))),*
        ];
    };
}

builtins![
    "generic",
    "wsm-ep",
    "snb",
    "snb-ep",
    "ivb",
    "ivb-ep",
    "hsw",
    "hsw-ep",
    "sapphire-rapids",
    "zen4",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-v1",
    "neoverse-v2",
];

/// All shipped sets; `generic` first.
pub fn builtin() -> &'static [Builtin] {
    &BUILTINS
}

impl MetricSet {
    /// The set for a CPU, named as a profile's header or the kernel names it (see [`CpuId::parse`]). `None`: this CPU
    /// has only the generic set.
    pub fn for_cpu(cpuid: &str) -> Option<&'static Self> {
        let cpu = CpuId::parse(cpuid);
        BUILTINS
            .iter()
            .map(Builtin::set)
            .find(|set| set.cpus.iter().any(|pattern| cpu.matches(pattern)))
    }

    /// The shipped set of this name, in any case of letters.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILTINS
            .iter()
            .find(|b| b.name.eq_ignore_ascii_case(name))
            .map(Builtin::set)
    }

    /// The set that needs nothing of the CPU's family: software events, and ratios of the kernel's generic events.
    pub fn generic() -> &'static Self {
        BUILTINS[0].set()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnKind, Count, Environment, Mode, NeededEvent, RecordedEvent};

    /// All events of a set, recorded under a name.
    fn recorded(set: &MetricSet, name: fn(&NeededEvent) -> &String) -> Vec<RecordedEvent> {
        let events = set.events.iter();
        events.map(|e| RecordedEvent::named(name(e))).collect()
    }

    #[test]
    fn every_shipped_file_reads_and_says_where_it_comes_from() {
        for b in builtin() {
            let set = MetricSet::from_toml(b.name, b.text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(set.name, b.name);
            assert!(
                !set.title.is_empty() && !set.sources.is_empty(),
                "{}",
                b.name
            );
            assert!(set.cpus.is_empty() == (b.name == "generic"), "{}", b.name);
            for column in set.columns() {
                assert!(
                    column.kind == ColumnKind::Event || !column.description.is_empty(),
                    "{}: {} has no description",
                    b.name,
                    column.name
                );
            }
            // Nothing is declared and left unused: a list that does not feed its tree.
            let needed = set.needed_events();
            for event in &set.events {
                assert!(
                    needed.contains(event),
                    "{}: {} is in no column",
                    b.name,
                    event.name
                );
                assert!(
                    event.encoding.is_some() || !set.unknown.is_empty(),
                    "{}: {} cannot be asked for, and the file does not say so",
                    b.name,
                    event.name
                );
            }
        }
    }

    #[test]
    fn no_two_events_of_a_set_answer_to_the_same_recording() {
        for b in builtin() {
            let set = b.set();
            let named = recorded(set, |event| &event.name);
            let bound = set.bind(&named, &Environment::new());
            assert_eq!(bound.notes(), [], "{}", b.name);
            // As `record` would ask for them.
            let encoded = recorded(set, |event| event.encoding.as_ref().unwrap_or(&event.name));
            let bound = set.bind(&encoded, &Environment::new());
            assert_eq!(bound.notes(), [], "{}", b.name);
        }
    }

    #[test]
    fn every_column_has_a_value_when_everything_is_recorded() {
        for b in builtin() {
            let set = b.set();
            let recorded = recorded(set, |event| &event.name);
            // Some formulas ask which revision of a CPU it is.
            let environment = Environment::new().with_cpu(CpuId::parse("0x00000000410fd490"));
            let bound = set.bind(&recorded, &environment);
            let counts: Vec<Count> = (0..recorded.len())
                .map(|i| Count::sampled(1000 + i as u64, (1_000_000 + 1000 * i) as u64, 1.0))
                .collect();
            let mut evaluator = bound.evaluator(&counts, Mode::Exact);
            for (cell, column) in evaluator.row(&counts).iter().zip(set.columns()) {
                assert!(
                    cell.value().is_some(),
                    "{}: {}: {cell:?}",
                    b.name,
                    column.name
                );
                assert!(
                    cell.error().is_some_and(f64::is_finite),
                    "{}: {}",
                    b.name,
                    column.name
                );
            }
            // Nothing recorded: nothing known, and no zero.
            let bound = set.bind(&[], &Environment::new());
            for (cell, column) in bound
                .evaluator(&[], Mode::Exact)
                .row(&[])
                .iter()
                .zip(set.columns())
            {
                assert!(
                    matches!(cell, crate::Cell::Missing(names) if !names.is_empty()),
                    "{}: {}: {cell:?}",
                    b.name,
                    column.name
                );
            }
        }
    }

    #[test]
    fn cpus_find_their_set() {
        for (cpu, name) in [
            ("GenuineIntel-6-2C-2", Some("wsm-ep")),
            ("GenuineIntel,6,44,2", Some("wsm-ep")),
            ("GenuineIntel,6,42,7", Some("snb")),
            ("GenuineIntel,6,45,7", Some("snb-ep")),
            ("GenuineIntel,6,58,9", Some("ivb")),
            ("GenuineIntel,6,62,4", Some("ivb-ep")),
            ("GenuineIntel,6,60,3", Some("hsw")),
            ("GenuineIntel,6,69,1", Some("hsw")),
            ("GenuineIntel-6-3F", Some("hsw-ep")),
            ("GenuineIntel-6-8F-8", Some("sapphire-rapids")),
            ("AuthenticAMD,25,17,1", Some("zen4")),
            ("AuthenticAMD,25,97,2", Some("zen4")),
            ("AuthenticAMD,25,33,0", None),
            ("0x00000000413fd0c1", Some("neoverse-n1")),
            ("0x00000000410fd490", Some("neoverse-n2")),
            ("0x00000000411fd401", Some("neoverse-v1")),
            ("0x00000000410fd4f1", Some("neoverse-v2")),
            ("GenuineIntel,6,167,1", None),
            ("", None),
        ] {
            assert_eq!(
                MetricSet::for_cpu(cpu).map(|s| s.name.as_str()),
                name,
                "{cpu}"
            );
        }
        assert!(MetricSet::named("Generic").is_some());
    }
}
