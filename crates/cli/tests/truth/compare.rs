//! Comparison of two tables.

use crate::alias::Aliases;
use crate::table::{Recording, Row, Table, UNKNOWN};

/// Checks our table of a recording against perf's, flat and with children, and returns the flat one.
///
/// Equal means: every named function has the same samples, the same weight and, to the printed digit, the same self
/// and total percentages. What may differ:
///
/// - Of several names at one address any may be shown.
/// - Addresses without a name are one row of ours and many of perf's: per module, their sums must be equal. Their
///   totals cannot be compared: perf counts a stack with two such addresses twice, we once.
/// - perf 6.1 finds some names less than we do: it has no names for `.plt.got` entries and for those of
///   functions chosen at load time (which it calls `@plt`), and none for the vdso without its cache. Such
///   rows count as unnamed. See also [`name_less`].
pub fn assert_equal(recording: &Recording) -> Table {
    assert_equal_with(recording, &[true, false], None, &[], &[])
}

/// Checks tables as [`assert_equal`] does, with a key (see [`Recording::perfs`]) and options for both tools, with and
/// without children. Returns the last table.
pub fn assert_equal_with(
    recording: &Recording,
    with_children: &[bool],
    key: Option<&str>,
    perfs_options: &[&str],
    our_options: &[&str],
) -> Table {
    let mut aliases = Aliases::new(recording.module_paths());
    let mut flat = Table::new();
    for children in with_children.iter().copied() {
        let perfs = recording.perfs(children, key, perfs_options);
        flat = recording.ours(children, our_options);
        assert!(
            !perfs.is_empty(),
            "perf reads no event of {:?}",
            recording.file
        );
        for (event, rows) in &perfs {
            let what = format!(
                "event {event}, {}",
                if children { "children" } else { "flat" }
            );
            let ours = flat.get(event).cloned().unwrap_or_default();
            assert_rows_equal(rows.clone(), ours, &mut aliases, &what);
        }
        for (event, rows) in &flat {
            assert!(
                perfs.contains_key(event) || rows.is_empty(),
                "perf has no event {event}"
            );
        }
    }
    flat
}

fn assert_rows_equal(mut perfs: Vec<Row>, mut ours: Vec<Row>, aliases: &mut Aliases, what: &str) {
    let sum = |rows: &[Row]| -> (u64, u64) {
        (
            rows.iter().map(|row| row.samples).sum(),
            rows.iter().map(|row| row.weight).sum(),
        )
    };
    assert_eq!(sum(&perfs), sum(&ours), "{what}: samples and weight in all");
    let named = |row: &Row| row.name != UNKNOWN;
    remove_pairs(&mut perfs, &mut ours, |perf, our| {
        named(perf) && perf == our
    });
    remove_pairs(&mut perfs, &mut ours, |perf, our| {
        let renamed = Row {
            name: our.name.clone(),
            ..perf.clone()
        };
        named(perf) && renamed == *our && aliases.same_place(&perf.module, &perf.name, &our.name)
    });
    merge_namesakes(&mut perfs, &mut ours);
    // Symbols without a size end with their section; perf lets them run into the next one, often the linkage table.
    for row in perfs.iter_mut().chain(&mut ours) {
        if ["_init", "_fini", "_etext", "etext"].contains(&row.name.as_str()) {
            row.name = UNKNOWN.to_owned();
        }
    }
    name_less(&mut perfs, &mut ours);
    // The remaining rows must be unnamed, or count as such.
    let differs = |row: &&Row| row.name != UNKNOWN && !row.name.ends_with("@plt");
    let more: Vec<&Row> = ours
        .iter()
        .filter(differs)
        .filter(|row| row.module != "[vdso]")
        .collect();
    let less: Vec<&Row> = perfs.iter().filter(differs).collect();
    assert!(
        more.is_empty() && less.is_empty(),
        "{what}:\nonly ours: {more:#?}\nonly perf's: {less:#?}"
    );
    let mut modules: Vec<String> = perfs
        .iter()
        .chain(&ours)
        .map(|row| row.module.clone())
        .collect();
    modules.sort();
    modules.dedup();
    for module in modules {
        let of = |rows: &[Row]| -> Vec<Row> {
            rows.iter()
                .filter(|row| row.module == module)
                .cloned()
                .collect()
        };
        assert_eq!(
            sum(&of(&perfs)),
            sum(&of(&ours)),
            "{what}: unnamed addresses of {module}"
        );
    }
}

/// Two files of one base name, such as two builds of a program, are two modules in our table; perf adds up their
/// functions that have one name and one address. Removes groups of rows of one name whose sums are equal.
fn merge_namesakes(perfs: &mut Vec<Row>, ours: &mut Vec<Row>) {
    let sums = |rows: &[Row], like: &Row| -> (u64, u64, f64) {
        rows.iter()
            .filter(|row| row.module == like.module && row.name == like.name)
            .fold((0, 0, 0.0), |(samples, weight, total), row| {
                let percent: f64 = row.total.parse().expect("a percentage");
                (samples + row.samples, weight + row.weight, total + percent)
            })
    };
    let candidates = perfs.clone();
    for row in candidates.iter().filter(|row| row.name != UNKNOWN) {
        let (perf, our) = (sums(perfs, row), sums(ours, row));
        // Each printed percentage may be wrong by half of its last digit.
        if (perf.0, perf.1) == (our.0, our.1) && (perf.2 - our.2).abs() < 0.021 {
            let other = |each: &Row| each.module != row.module || each.name != row.name;
            perfs.retain(other);
            ours.retain(other);
        }
    }
}

/// The share of an event that perf may miss of a function, in percent of the event.
const MISSED: f64 = 0.5;

/// perf 6.1 does not name every address of a function where a linker or BOLT has laid out the module unusually. Our
/// additional counts of a function then count as unnamed: they must be among perf's unnamed samples, and few.
fn name_less(perfs: &mut Vec<Row>, ours: &mut [Row]) {
    let percent = |text: &str| -> f64 { text.parse().expect("a percentage") };
    perfs.retain(|perf| {
        let counterpart = ours.iter_mut().find(|our| {
            let more = percent(&our.total) - percent(&perf.total);
            our.name == perf.name
                && our.module == perf.module
                && our.samples >= perf.samples
                && our.weight >= perf.weight
                && (0.0..=MISSED).contains(&more)
                && perf.name != UNKNOWN
        });
        let Some(our) = counterpart else {
            return true;
        };
        our.name = UNKNOWN.to_owned();
        our.samples -= perf.samples;
        our.weight -= perf.weight;
        false
    });
    // perf may name no address of a function with so small a share.
    for our in ours {
        if percent(&our.total) <= MISSED {
            our.name = UNKNOWN.to_owned();
        }
    }
}

/// Removes rows that have a counterpart, one for one.
fn remove_pairs(
    perfs: &mut Vec<Row>,
    ours: &mut Vec<Row>,
    mut same: impl FnMut(&Row, &Row) -> bool,
) {
    perfs.retain(|perf| match ours.iter().position(|our| same(perf, our)) {
        Some(index) => {
            ours.swap_remove(index);
            false
        }
        None => true,
    });
}
