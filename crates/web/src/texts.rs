//! Names and facts as answers have them.

use crate::api::FactAnswer;
use dioptra_profile::EventProfile;
use dioptra_tables::{Facts, Remedy, Unit};

/// Names of more bytes lose their middle.
const LONGEST: usize = 4096;

/// A name for an answer, and whether its middle was left out. Names may have megabytes.
pub(crate) fn shortened(name: &str) -> (String, bool) {
    if name.len() <= LONGEST {
        return (name.to_owned(), false);
    }
    let half = LONGEST / 2;
    let (mut start, mut end) = (half, name.len() - half);
    while !name.is_char_boundary(start) {
        start -= 1;
    }
    while !name.is_char_boundary(end) {
        end += 1;
    }
    (format!("{}…{}", &name[..start], &name[end..]), true)
}

/// A name for an answer.
pub(crate) fn name(name: &str) -> String {
    shortened(name).0
}

/// Facts for an answer, with their remedies.
pub(crate) fn facts(facts: &Facts) -> Vec<FactAnswer> {
    let mut facts = facts.clone();
    facts.spell_remedies(remedy);
    let facts = facts.iter().map(|fact| FactAnswer {
        id: fact.id.clone(),
        severity: fact.severity.word().to_owned(),
        text: fact.text.clone(),
        value: fact.value.clone(),
    });
    facts.collect()
}

/// A remedy in the words of somebody who looks at the page: a view of it, or a command to type.
fn remedy(remedy: &Remedy) -> String {
    match remedy {
        Remedy::RecordCallChains => "record with dioptra record -g".to_owned(),
        Remedy::RecordFramePointers => {
            "record with dioptra record --call-graph fp".to_owned()
        }
        Remedy::RecordLargerStacks => {
            "record with dioptra record --call-graph dwarf,SIZE".to_owned()
        }
        Remedy::RecordWithLargerBuffer => "record with dioptra record -m and more pages".to_owned(),
        Remedy::RecordLessOften => "record with dioptra record -F and a lower frequency".to_owned(),
        Remedy::RecordMoreOften => {
            "record with dioptra record -F and a higher frequency".to_owned()
        }
        Remedy::RecordAllCpus => "record all CPUs with dioptra record -a".to_owned(),
        Remedy::RecordOnMonotonicClock => "record with perf's -k mono".to_owned(),
        Remedy::RecordWindows(set) => {
            format!("record with dioptra record --windows --metrics {set}")
        }
        Remedy::RecordMetrics(set) => format!("record with dioptra record --metrics {set}"),
        Remedy::ShowBranchCallers => {
            "dioptra report --tree callers shows the calls of the branch records".to_owned()
        }
        Remedy::ShowWindows => "dioptra metrics shows them".to_owned(),
        Remedy::ShowBy(rows) => format!("dioptra report --by {rows} fits better"),
        Remedy::GiveRecordedFiles => {
            "start dioptra web with --symfs and the folder that holds them".to_owned()
        }
        Remedy::GiveSources => {
            "start dioptra web with --source-path OLD=NEW, or with --symfs and the folder that holds them"
                .to_owned()
        }
        Remedy::GiveKernelFile => "start dioptra web with --vmlinux and the file".to_owned(),
        Remedy::FetchDebugFile => "start dioptra web with --debuginfod".to_owned(),
        Remedy::ShowTraceInfo => "the summary tells more".to_owned(),
        Remedy::ShowCallErrors => "the statistics show their errors".to_owned(),
        Remedy::TraceLess => {
            "trace fewer functions, or start dioptra trace record with more --memory or with --on-full drop"
                .to_owned()
        }
    }
}

/// The unit of an event's weights, as tables have it.
pub(crate) fn unit(event: &EventProfile) -> Option<String> {
    let unit: Option<Unit> = dioptra_report::unit_of(event);
    unit.as_ref().and_then(Unit::id).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle() {
        let long = "é".repeat(1 << 20);
        let (short, cut) = shortened(&long);
        assert!(cut && short.len() <= LONGEST + 4 && short.contains('…'));
        assert_eq!(shortened("<script>"), ("<script>".to_owned(), false));
    }
}
