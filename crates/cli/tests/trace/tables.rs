//! `dioptra report`, `sum` and `diff` on traces: the tables that profiles have. The numbers are those of
//! `dioptra trace report`, to the nanosecond.

use crate::made::{Made, PROGRAM, Step, scripted, trace, trace_in_chunks};
use dioptra_tracelayout::SwitchKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn dioptra(command: &str, folders: &[&Path], arguments: &str) -> Output {
    let mut run = Command::new(PROGRAM.expect("the program"));
    run.arg(command);
    for folder in folders {
        match command {
            "report" => run.arg("-i").arg(folder),
            _ => run.arg(folder),
        };
    }
    run.args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

/// Returns a command's table.
fn table(command: &str, folders: &[&Path], arguments: &str) -> Table {
    let output = dioptra(command, folders, &format!("{arguments} --format json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {arguments}: {said}");
    Table(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn of(made: &Made, arguments: &str) -> Table {
    table("report", &[made.folder()], arguments)
}

/// A table as JSON.
struct Table(Value);

impl Table {
    fn column(&self, id: &str) -> usize {
        let columns = self.0["columns"].as_array().expect("columns");
        let found = columns.iter().position(|column| column["id"] == id);
        found.unwrap_or_else(|| panic!("no column {id}"))
    }

    fn rows(&self) -> &[Value] {
        self.0["rows"].as_array().expect("rows")
    }

    fn cell<'a>(&'a self, row: &'a Value, id: &str) -> &'a Value {
        &row["cells"][self.column(id)]
    }

    fn number(&self, row: &Value, id: &str) -> u64 {
        let cell = self.cell(row, id);
        cell.as_u64().unwrap_or_else(|| panic!("{id}: {cell}"))
    }

    /// Returns total, self time and calls by the text in a column.
    fn sums(&self, name: &str) -> Vec<(String, [u64; 3])> {
        let row = |row: &Value| {
            let numbers = ["total", "self", "calls"].map(|id| self.number(row, id));
            (
                self.cell(row, name).as_str().expect("a name").to_owned(),
                numbers,
            )
        };
        let mut rows: Vec<_> = self.rows().iter().map(row).collect();
        rows.sort();
        rows
    }

    /// Returns the only row with this text in a column.
    fn row(&self, column: &str, text: &str) -> &Value {
        let mut rows = self.rows().iter();
        let found = rows.find(|row| self.cell(row, column) == text);
        found.unwrap_or_else(|| panic!("no row {text}: {}", self.0))
    }

    fn fact(&self, id: &str) -> Option<&Value> {
        let facts = self.0["facts"].as_object().expect("facts");
        facts.get(id)
    }
}

/// Returns the table of `dioptra trace report`.
fn trace_report(folder: &Path, arguments: &str) -> Table {
    let output = crate::made::dioptra("report", folder, &format!("{arguments} --format json"));
    assert!(output.status.success(), "{output:?}");
    Table(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Returns a thread's steps: a random walk over functions, with recursion, by a fixed sequence of numbers.
fn walk(mut seed: u64, steps: usize) -> Vec<Step> {
    let mut draw = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let (mut time, mut depth, mut all) = (1_000_000, 0, Vec::new());
    for _ in 0..steps {
        time += 1 + draw(5_000);
        if depth > 0 && draw(100) < 48 {
            depth -= 1;
            all.push(Step::Leave(time));
        } else {
            depth += 1;
            all.push(Step::Enter(time, format!("f{}", draw(9))));
        }
    }
    for _ in 0..depth {
        time += 1 + draw(5_000);
        all.push(Step::Leave(time));
    }
    all
}

fn walks() -> Made {
    trace(&[(7, walk(1, 4_000)), (8, walk(2, 3_000)), (9, walk(3, 1))]).with_switches(&[
        (8, 1_500_000, SwitchKind::Wait),
        (8, 1_600_000, SwitchKind::In),
        (7, 1_700_000, SwitchKind::Preempted),
        (7, 1_800_000, SwitchKind::In),
    ])
}

#[test]
fn functions_have_the_sums_of_the_trace_report() {
    let made = walks();
    for (ours, theirs) in [
        ("", ""),
        ("--tid 8", "--tid 8"),
        ("--time 0.001..0.0042", "-r 1ms~4200us"),
        ("-N f3 -t 20us", "-N f3 -t 20us"),
        ("-F f1 -D 3 --no-sched", "-F f1 -D 3 --no-sched"),
    ] {
        let sums = of(&made, ours).sums("function");
        assert!(sums.len() > 3, "{ours}: {sums:?}");
        assert_eq!(
            sums,
            trace_report(made.folder(), theirs).sums("function"),
            "{ours}"
        );
    }
}

#[test]
fn the_numbers_of_rows_add_up_to_those_of_the_row_above() {
    let made = walks();
    let table = of(&made, "--by program,process,thread,module,function");
    let rows: BTreeMap<u64, &Value> = table
        .rows()
        .iter()
        .map(|row| (row["id"].as_u64().expect("an id"), row))
        .collect();
    let mut below: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for row in rows.values() {
        if let Some(parent) = row["parent"].as_u64() {
            let sums = below.entry(parent).or_default();
            sums[0] += table.number(row, "self");
            sums[1] += table.number(row, "calls");
            assert!(table.number(row, "total") <= table.number(rows[&parent], "total"));
        }
    }
    assert_eq!(below.len(), 1 + 1 + 3 + 3 + 2);
    for (parent, sums) in below {
        let row = rows[&parent];
        assert_eq!(
            sums,
            ["self", "calls"].map(|id| table.number(row, id)),
            "{row}"
        );
    }
    // The time of a thread is that within its outermost calls, as the table of threads has it.
    let threads = of(&made, "--by thread");
    let theirs = trace_report(made.folder(), "--task");
    for tid in [7, 8, 9] {
        let ours = threads
            .rows()
            .iter()
            .find(|row| *threads.cell(row, "tid") == tid);
        let other = theirs
            .rows()
            .iter()
            .find(|row| *theirs.cell(row, "tid") == tid);
        let (ours, other) = (ours.expect("a row"), other.expect("a row"));
        assert_eq!(threads.number(ours, "total"), theirs.number(other, "total"));
        assert_eq!(threads.number(ours, "total"), threads.number(ours, "self"));
    }
}

#[test]
fn estimates_have_the_errors_of_the_trace_report() {
    let made = trace(&[(7, walk(4, 6_000)), (8, walk(5, 6_000))]);
    for rule in [
        "-F f1@sample=3",
        "-T f2@sample=1/4",
        "-F f4@sample=2 -F f5@sample=2",
    ] {
        let (ours, theirs) = (of(&made, rule), trace_report(made.folder(), rule));
        let error = |table: &Table, name: &str, column: &str| {
            let row = table.row("function", name);
            row["standard_errors"][column].as_f64()
        };
        assert!(ours.rows().len() > 3);
        let mut estimated = 0;
        for row in theirs.rows() {
            let name = theirs.cell(row, "function").as_str().expect("a name");
            for column in ["total", "self", "calls"] {
                let own = ours.row("function", name);
                assert_eq!(
                    ours.number(own, column),
                    theirs.number(row, column),
                    "{name}"
                );
                let (a, b) = (error(&ours, name, column), error(&theirs, name, column));
                estimated += u32::from(b.is_some_and(|error| error > 0.0));
                match (a, b) {
                    (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{name}"),
                    (a, b) => assert_eq!(a, b, "{name} {column}"),
                }
            }
        }
        assert!(estimated >= 2, "{rule}: {}", theirs.0);
        assert!(ours.fact("sampled_functions").is_some());
    }
}

#[test]
fn a_groups_estimate_is_that_of_its_only_function() {
    // One library has all functions, so the row of the module has all calls.
    let made = scripted(&format!("main( {} )", "a( b b ) ".repeat(40)));
    let rule = "-N main -F b@sample=4";
    let table = of(&made, &format!("--by module,function {rule}"));
    let calls = |level: &str| {
        let rows = table
            .rows()
            .iter()
            .filter(|row| *table.cell(row, "level") == level);
        rows.map(|row| table.number(row, "calls")).sum::<u64>()
    };
    assert_eq!((calls("module"), calls("function")), (0, 0));
    let rule = "-F b@sample=4";
    let table = of(&made, &format!("--by module,function {rule}"));
    for row in table.rows() {
        assert_eq!(table.number(row, "calls"), 80, "{row}");
        // The calls of a sampled function are counted.
        assert_eq!(row["standard_errors"]["calls"].as_f64(), Some(0.0), "{row}");
        assert!(row["standard_errors"]["self"].as_f64().is_some(), "{row}");
    }
}

/// Returns the rows of a tree as paths from the top, with total, self time and calls.
fn paths(table: &Table) -> BTreeMap<Vec<String>, [u64; 3]> {
    let mut known: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut paths = BTreeMap::new();
    let mut rows: Vec<&Value> = table.rows().iter().collect();
    rows.sort_by_key(|row| row["id"].as_u64());
    for row in rows {
        let parent = row["parent"].as_u64();
        let mut path = parent.map_or(Vec::new(), |parent| known[&parent].clone());
        path.push(
            table
                .cell(row, "function")
                .as_str()
                .expect("a name")
                .to_owned(),
        );
        known.insert(row["id"].as_u64().expect("an id"), path.clone());
        let numbers = ["total", "self", "calls"].map(|id| table.number(row, id));
        assert!(paths.insert(path, numbers).is_none());
    }
    paths
}

/// Returns the paths of a thread's calls and their numbers, as a tree must have them.
fn expected_paths(steps: &[Step], callers: bool) -> BTreeMap<Vec<String>, [u64; 3]> {
    struct Open {
        name: String,
        start: u64,
        below: u64,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut paths: BTreeMap<Vec<String>, [u64; 3]> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Enter(time, name) => open.push(Open {
                name: name.clone(),
                start: *time,
                below: 0,
            }),
            Step::Leave(time) => {
                let names: Vec<String> = open.iter().map(|call| call.name.clone()).collect();
                let call = open.pop().expect("an open call");
                let total = time - call.start;
                if let Some(above) = open.last_mut() {
                    above.below += total;
                }
                let own = total - call.below;
                let mut add = |path: Vec<String>, outermost: bool| {
                    let sums = paths.entry(path).or_default();
                    sums[0] += if outermost { total } else { 0 };
                    sums[1] += own;
                    sums[2] += 1;
                };
                if !callers {
                    add(names, true);
                    continue;
                }
                for length in 1..=names.len() {
                    let path = &names[names.len() - length..];
                    // A call counts once in the total if a call around it came by the same path.
                    let mut around = (length..names.len()).map(|end| &names[end - length..end]);
                    let nested = around.any(|other| other == path);
                    add(path.iter().rev().cloned().collect(), !nested);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    paths
}

#[test]
fn trees_have_the_numbers_of_every_path() {
    let steps = walk(6, 700);
    let made = trace(&[(7, steps.clone())]);
    for (direction, callers) in [("callees", false), ("callers", true)] {
        let tree = of(&made, &format!("--tree {direction} --percent-limit 0"));
        let mut expected = expected_paths(&steps, callers);
        let found = paths(&tree);
        // Rows of no time are there, too.
        expected.retain(|path, _| found.contains_key(path) || !path.is_empty());
        assert_eq!(found, expected, "{direction}");
    }
    // Rows below the limit are counted.
    let all = of(&made, "--tree callees --percent-limit 0").rows().len();
    let tree = of(&made, "--tree callees --percent-limit 5");
    assert!(tree.rows().len() < all, "{} {all}", tree.rows().len());
    assert!(tree.fact("tree_rows_left_out").is_some(), "{}", tree.0);
    let tops = of(&made, "--tree callers --percent-limit 0");
    let tops: Vec<&Value> = tops
        .rows()
        .iter()
        .filter(|row| row["parent"].is_null())
        .collect();
    assert_eq!(tops.len(), of(&made, "").rows().len());
}

#[test]
fn deep_recursion_makes_trees_of_its_depth() {
    let mut deep = Vec::new();
    for depth in 0..20_000_u64 {
        deep.push(Step::Enter(1_000 + depth, format!("d{}", depth % 3)));
    }
    for depth in 0..20_000_u64 {
        deep.push(Step::Leave(30_000 + depth));
    }
    let made = trace_in_chunks(&[(7, deep)], 50_000);
    for direction in ["callees", "callers"] {
        let tree = of(&made, &format!("--tree {direction} --limit 3"));
        assert!(!tree.rows().is_empty());
        let is_cut = tree.fact("tree_rows_left_out").is_some();
        assert_eq!(is_cut, direction == "callers");
    }
    let table = of(&made, "");
    let first = table.row("function", "d0");
    assert_eq!(table.number(first, "total"), 30_000 + 19_999 - 1_000);
}

#[test]
fn a_sum_is_the_sum_of_its_traces() {
    let (one, two) = (walks(), scripted("main( f1( f2 ) f3 )"));
    let folders = [one.folder(), two.folder()];
    let mut expected: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for made in [&one, &two] {
        for (name, numbers) in of(made, "").sums("function") {
            let sums = expected.entry(name).or_default();
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += number;
            }
        }
    }
    let expected: Vec<_> = expected.into_iter().collect();
    assert_eq!(table("sum", &folders, "").sums("function"), expected);
    assert_eq!(table("report", &folders, "").sums("function"), expected);
    let threads = table("sum", &folders, "--by process,thread");
    let threads = threads.rows().iter().filter(|row| !row["parent"].is_null());
    assert_eq!(threads.count(), 3);
}

#[test]
fn differences_are_exact() {
    let one = scripted("main( a( b ) a( b ) old )");
    let two = scripted("main( a( b( c ) ) new new )");
    let table = table("diff", &[one.folder(), two.folder()], "");
    let delta = |name: &str, column: &str| {
        let row = table.row("function", name);
        table.cell(row, column).as_i64().expect("a number")
    };
    let sums = [of(&one, ""), of(&two, "")];
    let sums = sums.map(|table| {
        table
            .sums("function")
            .into_iter()
            .collect::<BTreeMap<_, _>>()
    });
    for name in ["main", "a", "b", "c", "old", "new"] {
        let of = |slot: usize, index: usize| {
            let numbers = sums[slot].get(name).copied().unwrap_or_default();
            numbers[index] as i64
        };
        for (index, id) in ["total", "self", "calls"].into_iter().enumerate() {
            let difference = of(1, index) - of(0, index);
            assert_eq!(
                delta(name, &format!("b_{id}_delta")),
                difference,
                "{name} {id}"
            );
        }
    }
    let status = |name: &str| table.cell(table.row("function", name), "b_status").clone();
    assert_eq!(status("new"), "new");
    assert_eq!(status("old"), "gone");
    assert_eq!(status("a"), Value::Null);
    // Counted calls have no errors.
    assert!(
        table
            .rows()
            .iter()
            .all(|row| row["standard_errors"].is_null())
    );
}

#[test]
fn differences_of_estimates_have_errors() {
    let text = |calls: usize| scripted(&format!("main( {} )", "a( b c ) d ".repeat(calls)));
    let (one, two) = (text(50), text(90));
    let table = table("diff", &[one.folder(), two.folder()], "-F a@sample=5");
    let row = table.row("function", "b");
    assert_eq!(table.cell(row, "b_calls_delta"), 40);
    let error = |slot: &Made| {
        let table = of(slot, "-F a@sample=5");
        table.row("function", "b")["standard_errors"]["calls"]
            .as_f64()
            .expect("an error")
    };
    let both = error(&one).hypot(error(&two));
    let found = row["standard_errors"]["b_calls_delta"]
        .as_f64()
        .expect("an error");
    assert!((found - both).abs() < 1e-9, "{found} {both}");
}

#[test]
fn what_makes_no_sense_on_traces_is_a_wrong_argument() {
    let made = scripted("main( a )");
    let wrong = |command: &str, folders: &[&Path], arguments: &str, word: &str| {
        let output = dioptra(command, folders, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(word), "{arguments}: {said}");
        assert!(output.stdout.is_empty());
    };
    for (arguments, word) in [
        ("--metric ipc", "--metric"),
        ("--by line", "--by"),
        ("--by cpu", "--by"),
        ("--by function,function", "twice"),
        ("--comm program", "--comm"),
        ("--dso program", "--dso"),
        ("-e cycles", "-e"),
        ("--cpu 3", "--cpu"),
        ("--inline", "--inline"),
        ("--tree callers --calls", "--calls"),
        ("--tree callers --by module", "--tree"),
        ("--working-set", "--working-set"),
        ("--columns samples", "--columns"),
        ("--percent row", "--percent"),
        ("--slices 3", "--slices"),
        ("-F a@sampel=2", "sampel"),
        ("--time 1..2 -r 1s~", "--time"),
    ] {
        wrong("report", &[made.folder()], arguments, word);
    }
    let folder = made.folder();
    wrong("diff", &[folder, folder], "--normalize time", "--normalize");
    wrong("diff", &[folder, folder], "--metric ipc", "--metric");
    // A trace and something else, and rules about calls for a profile.
    let other = tempfile::tempdir().expect("a folder");
    let file = other.path().join("perf.data");
    std::fs::write(&file, "no profile").expect("a file");
    wrong("diff", &[folder, &file], "", "is a trace");
    wrong("report", &[&file], "-F main", "rule about functions");
}

#[test]
fn text_and_csv_show_the_same_rows() {
    let made = scripted("main( a( b ) )");
    let output = dioptra("report", &[made.folder()], "--format csv");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    let heads = lines.next().expect("a heading");
    assert!(
        heads.starts_with("self_percent,calls,self,total,module,function,"),
        "{heads}"
    );
    assert_eq!(lines.count(), 3);
    let output = dioptra("report", &[made.folder()], "--children");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        lines[0].contains("total") && lines[0].contains("self time"),
        "{text}"
    );
    assert!(lines[1].trim_start().starts_with("100.00%"), "{text}");
    assert!(lines[1].ends_with("main"), "{text}");
    let output = dioptra(
        "report",
        &[made.folder()],
        "--sort calls:asc --limit 1 --format csv",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
}
