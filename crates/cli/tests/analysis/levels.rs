//! `report --by A,B,…`.

use super::{Table, dioptra, record, report, shared_files, shown, text};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns the sums of periods that perf reports by these keys, over all events.
fn perfs(file: &Path, sort: &str) -> Option<BTreeMap<Vec<String>, u64>> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("perf")
        .arg("--buildid-dir")
        .arg(folder.path())
        .args([
            "report",
            "--stdio",
            "-g",
            "none",
            "--no-children",
            "--no-branch-stack",
            // Without widths perf may cut names.
            "--column-widths",
            "0,0,300,300,300",
            "--no-demangle",
        ])
        .args(["--no-inline", "--sort", sort, "--show-total-period"])
        .args(["--field-separator", "|", "-i"])
        .arg(file)
        .output()
        .expect("perf runs");
    if !output.status.success() {
        return None;
    }
    let mut sums = BTreeMap::new();
    for line in text(&output.stdout).lines() {
        let mut cells = line.split('|').map(str::trim);
        let (Some(_), Some(weight)) = (cells.next(), cells.next()) else {
            continue;
        };
        let Ok(weight) = weight.parse::<u64>() else {
            continue;
        };
        let key = cells.map(|cell| {
            // A function's name comes with a mark of its place: `[.] main`. Threads without a name have their number.
            let name = cell
                .get(..4)
                .filter(|start| start.starts_with('[') && start.ends_with("] "));
            let is_number = cell
                .strip_prefix(':')
                .is_some_and(|rest| rest.parse::<i32>().is_ok());
            match (name, is_number) {
                (Some(_), _) => cell[4..].to_owned(),
                (_, true) => "[unknown]".to_owned(),
                _ => cell.to_owned(),
            }
        });
        *sums.entry(key.collect()).or_default() += weight;
    }
    Some(sums)
}

/// Returns our sums over all events, of rows on one level.
fn ours(table: &Table, level: &str, names: &[&str]) -> BTreeMap<Vec<String>, u64> {
    let mut sums = BTreeMap::new();
    for column in table.sums().iter().filter(|id| id.starts_with("weight")) {
        for (key, weight) in table.by(column, names, |row| row.text("level") == level) {
            *sums.entry(key).or_default() += weight;
        }
    }
    sums
}

#[test]
fn modules_and_functions_of_commands_as_perf_has_them() {
    or_skip!(programs::need_tool("gcc"));
    let script = "for i in 1 2 3; do printf 'int main(void){return 0;}\\n' | gcc -O2 -x c -o /dev/null -; done";
    let recorded = or_skip!(record(
        &["-e", "cpu-clock,page-faults", "-F", "4000", "-g"],
        &["sh", "-c", script]
    ));
    let table = report(
        &recorded.file,
        &["--by", "comm,module,function", "--no-demangle"],
    );
    table.assert_sums("gcc");
    let perf = perfs(&recorded.file, "comm,dso").expect("perf reads its file");
    assert_eq!(ours(&table, "module", &["comm", "module"]), perf);
    assert!(perf.len() > 5, "{perf:?}");
    // Both tools have names for the kernel's functions. Where one address has several names, they may take different
    // ones.
    let perf = perfs(&recorded.file, "comm,dso,sym").expect("perf reads its file");
    let ours = ours(&table, "function", &["comm", "module", "function"]);
    let weights = |rows: &BTreeMap<Vec<String>, u64>| -> Vec<(String, u64)> {
        let of_kernel = rows.iter().filter(|(key, _)| key[1] == "[kernel.kallsyms]");
        let mut weights: Vec<_> = of_kernel
            .map(|(key, weight)| (key[0].clone(), *weight))
            .collect();
        weights.sort();
        weights
    };
    assert_eq!(weights(&ours), weights(&perf));
    // In stripped modules a function that only its unwind information tells of is one row of ours, `[0x1234]`; perf shows
    // each address of it. A machine's compiler decides the share of such rows, so only named functions are compared. Where
    // one address has several names (`open64`, `__open64`), the tools may take different ones.
    let named = ours.iter().filter(|(key, _)| !key[2].starts_with('['));
    let (same, apart): (Vec<_>, Vec<_>) =
        named.partition(|(key, weight)| perf.get(*key) == Some(weight));
    assert!(same.len() > 100, "{same:?}");
    assert!(same.len() > apart.len() * 9, "{} {apart:?}", same.len());
    // In another order the same.
    let other = report(&recorded.file, &["--by", "function,comm", "--no-demangle"]);
    other.assert_sums("gcc");
    let names = ["comm", "module", "function"];
    for column in table.sums() {
        assert_eq!(
            table.by(column, &names, |row| row.text("level") == "function"),
            other.by(column, &names, |row| row.text("level") == "comm"),
        );
    }
}

#[test]
fn others_files_add_up_and_equal_perf() {
    let mut compared = 0;
    for file in shared_files() {
        let what = file.display().to_string();
        for by in [
            "comm,module",
            "process,thread,module,function,address",
            "program,line",
        ] {
            let table = report(&file, &["--by", by]);
            table.assert_sums(&what);
            let flat = report(&file, &["--by", "module"]);
            for column in flat.sums() {
                assert_eq!(table.total(column), flat.total(column), "{what}: {by}");
            }
        }
        // perf makes samples from a processor's trace.
        if programs::need_tool("perf").is_err() || what.contains("intel_pt") {
            continue;
        }
        // perf shows nothing of some files.
        let Some(perf) = perfs(&file, "comm,dso").filter(|rows| !rows.is_empty()) else {
            continue;
        };
        let table = report(&file, &["--by", "comm,module"]);
        // A sample without a period counts as one event; perf takes the attribute's period.
        if table
            .columns
            .iter()
            .filter(|id| id.starts_with("samples"))
            .count()
            != table
                .columns
                .iter()
                .filter(|id| id.starts_with("weight"))
                .count()
        {
            continue;
        }
        let mut ours = ours(&table, "module", &["comm", "module"]);
        // perf takes the kernel in some files for an unknown module.
        if perf.keys().all(|key| key[1] != "[kernel.kallsyms]") {
            let mut renamed = BTreeMap::new();
            for (mut key, weight) in ours {
                if key[1] == "[kernel.kallsyms]" {
                    key[1] = "[unknown]".to_owned();
                }
                *renamed.entry(key).or_default() += weight;
            }
            ours = renamed;
        }
        if what.ends_with("perf.data.throttle-3.8") {
            // One sample is of powerd's process and of thread 0, which perf takes for an idle CPU's.
            let kernel = |name: &str| vec![name.to_owned(), "[kernel.kallsyms]".to_owned()];
            *ours.entry(kernel("swapper")).or_default() += 10_000;
            *ours.entry(kernel("powerd")).or_default() -= 10_000;
        }
        assert_eq!(ours, perf, "{what}");
        compared += 1;
    }
    assert!(compared > 10 || shared_files().is_empty(), "{compared}");
}

#[test]
fn blocks_are_of_their_functions_and_hold_their_instructions() {
    let shares = or_skip!(programs::c("shares", &["-O1", "-g"]));
    let recorded = or_skip!(record(&["-e", "cpu-clock", "-F", "4000"], &[&shares]));
    let table = report(
        &recorded.file,
        &["--by", "module,function,block,instruction"],
    );
    table.assert_sums("shares");
    let address = |cell: &serde_json::Value| {
        let text = cell.as_str().expect("an address").trim_start_matches("0x");
        u64::from_str_radix(text, 16).expect("hexadecimal")
    };
    let mut inside = 0;
    for row in table
        .rows
        .iter()
        .filter(|row| row.text("level") == "instruction")
    {
        if row.text("module") != "shares" {
            continue;
        }
        let block = table.rows.iter().find(|other| Some(other.id) == row.parent);
        let block = block.expect("a block");
        let at = address(&row.cells["address"]);
        let (start, end) = (&block.cells["address"], &block.cells["end_address"]);
        assert!(
            (address(start)..address(end)).contains(&at),
            "{row:?} {block:?}"
        );
        inside += row.count("samples");
    }
    assert!(inside > 1000, "{inside}");
    // Each of the three loops is one block.
    for function in ["sixty", "thirty", "ten"] {
        let blocks = table.rows.iter().filter(|row| {
            row.text("level") == "block"
                && row.text("function") == function
                && row.count("samples") > 20
        });
        assert_eq!(blocks.count(), 1, "{function}");
    }
    // One level alone says the same.
    let flat = report(&recorded.file, &["--by", "block"]);
    let largest = &flat.rows[0];
    assert_eq!(largest.text("function"), "sixty");
    assert!(largest.text("file").ends_with("shares.c"), "{largest:?}");
    assert_eq!(flat.total("weight"), table.total("weight"));
}

#[test]
fn slices_of_time_are_those_of_the_time_filter() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(&["-e", "cpu-clock", "-F", "2000"], &[&shares]));
    let table = report(&recorded.file, &["--by", "time,function", "--slices", "4"]);
    table.assert_sums("shares");
    let slices: Vec<_> = table
        .rows
        .iter()
        .filter(|row| row.parent.is_none())
        .collect();
    assert_eq!(slices.len(), 4);
    for (slice, next) in slices.iter().zip(&slices[1..]) {
        assert_eq!(slice.count("end"), next.count("start"));
    }
    for slice in &slices {
        let span = format!(
            "{}..{}",
            slice.count("start") as f64 / 1e9,
            slice.count("end") as f64 / 1e9
        );
        let filtered = report(&recorded.file, &["--time", &span]);
        assert_eq!(filtered.total("samples"), slice.count("samples"), "{span}");
    }
}

#[test]
fn renderings_of_levels() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(&["-e", "cpu-clock", "-F", "1000"], &[&shares]));
    let file = recorded.file.to_str().expect("a path");
    let arguments = ["report", "-i", file, "--by", "process,module,function"];
    let table = shown(&arguments);
    assert!(table.contains("process / module / function"), "{table}");
    assert!(
        table.contains("  shares\n") && table.contains("    sixty\n"),
        "{table}"
    );
    let csv = shown(&[&arguments[..], &["--format", "csv", "--limit", "1"]].concat());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "row_id,parent_row_id,self_percent,samples,weight,pid,process,module,module_id,function,function_address,level,name"
    );
    // Rows: the hottest function of the hottest module of the hottest process.
    assert_eq!(lines.len(), 4, "{csv}");
    assert!(
        lines[3].ends_with(",function,sixty") && lines[3].contains(",sixty,0x"),
        "{csv}"
    );
    // Percentages are of the row above.
    let table = report(
        &recorded.file,
        &["--by", "module,function", "--percent", "parent"],
    );
    for module in table.rows.iter().filter(|row| row.parent.is_none()) {
        let below = table
            .rows
            .iter()
            .filter(|row| row.parent == Some(module.id));
        let percent: f64 = below.filter_map(|row| row.number("self_percent")).sum();
        assert!((percent - 100.0).abs() < 1e-6, "{percent}");
    }
    for wrong in [
        &["--by", "function,function"][..],
        &["--by", "process,cpu", "--children"],
    ] {
        let output = dioptra(&[&["report", "-i", file], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn children_of_levels_count_recursion_once() {
    let recursion = or_skip!(programs::c("recursion", &[]));
    let recorded = or_skip!(record(
        &["-e", "cpu-clock", "-F", "2000", "-g"],
        &[&recursion]
    ));
    let flat = report(&recorded.file, &["--children"]);
    let levels = report(&recorded.file, &["--children", "--by", "module,function"]);
    levels.assert_sums("recursion");
    let total = |table: &Table, level: Option<&str>| -> BTreeMap<(String, String), String> {
        let rows = table.rows.iter();
        rows.filter(|row| level.is_none_or(|level| row.text("level") == level))
            .map(|row| {
                let key = (
                    row.text("module").to_owned(),
                    row.text("function").to_owned(),
                );
                (key, row.cells["total_percent"].to_string())
            })
            .collect()
    };
    assert_eq!(total(&flat, None), total(&levels, Some("function")));
    for row in &levels.rows {
        assert!(row.number("total_percent") <= Some(100.0), "{row:?}");
    }
}
