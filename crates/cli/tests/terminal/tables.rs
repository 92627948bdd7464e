//! Tables of `report`, `diff`, `sum` and `metrics`.

use crate::{at_terminal, dioptra, piped, recorded, shown, templates};
use dioptra_tables::display_width;
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;

#[test]
fn serial_tables_fit_the_terminal() {
    let file = or_skip!(templates());
    let whole = piped(&["report", "-i"], file);
    let widest = whole.lines().map(display_width).max();
    assert!(widest > Some(300), "the program has long names: {widest:?}");
    let path = file.to_str().expect("a path");
    for columns in [60, 80, 120, 200] {
        for arguments in [
            &["report", "-i"][..],
            &["report", "--children", "-i"],
            &["report", "--tree", "callers", "-i"],
            &["report", "--tree", "callees", "--event", "1", "-i"],
            &["report", "--by", "process,module,function", "-i"],
            &["report", "--by", "line", "-i"],
            &["report", "--by", "block", "-i"],
            &["report", "--by", "time", "-i"],
            &["diff", path],
            &["sum", path],
            &["metrics", "--event", "1", "-i"],
            &["annotate", "-i"],
            &["annotate", "--source", "-i"],
        ] {
            // Without groups there are no windows, whose metrics this would show.
            let shown = shown(arguments, file, columns);
            let lines = shown.lines();
            assert!(
                shown.widest() <= columns.into(),
                "{columns} {arguments:?}: {}",
                shown.text
            );
            assert!(lines.len() > 5, "{arguments:?}: {}", shown.text);
            // One way to write percents.
            let spaced = lines.iter().filter(|line| line.starts_with('#'));
            for line in spaced {
                assert!(!line.contains(" %"), "{line}");
            }
        }
    }
}

#[test]
fn serial_a_screen_has_forty_rows_and_a_sum_of_the_others() {
    let file = or_skip!(templates());
    let arguments = |more: &[&'static str]| -> Vec<&'static str> {
        let mut arguments = vec!["report", "--event", "1", "--by", "address"];
        arguments.extend(more);
        arguments.push("-i");
        arguments
    };
    let json = piped(&arguments(&["--format", "json"]), file);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let all = json["rows"].as_array().expect("rows");
    assert!(all.len() > 50, "{} rows", all.len());
    let rows = |more: &[&'static str]| shown(&arguments(more), file, 100).rows();
    let is_row = |line: &&String| {
        line.trim_start()
            .starts_with(|first: char| first.is_ascii_digit())
    };
    let count = |rows: &[String]| rows.iter().filter(is_row).count();
    let usual = rows(&[]);
    assert_eq!(count(&usual), 40, "{usual:#?}");
    let share = |row: &Value| row["cells"][0].as_f64().expect("a share");
    let rest: f64 = all[40..].iter().map(share).sum();
    let rest = format!("… {} more rows, {rest:.2}%", all.len() - 40);
    assert_eq!(usual.last(), Some(&rest));
    // Everything is there for who asks.
    assert_eq!(count(&rows(&["--all"])), all.len());
    assert_eq!(count(&rows(&["--limit", "7"])), 7);
}

#[test]
fn serial_names_come_before_the_second_event() {
    let file = or_skip!(templates());
    for columns in [80, 120] {
        let rows = shown(&["report", "--limit", "3", "-i"], file, columns).rows();
        let heads: Vec<&str> = rows[1].split_whitespace().collect();
        let function = heads.iter().position(|head| *head == "function");
        let shares: Vec<usize> = (0..heads.len()).filter(|at| heads[*at] == "self").collect();
        assert_eq!(shares.len(), 3, "{rows:#?}");
        assert!(
            function > Some(shares[0]) && function < Some(shares[1]),
            "{rows:#?}"
        );
        // Each event's name stands above its share.
        for event in ["cpu-clock", "pag", "task-clock"] {
            assert!(rows[0].contains(event), "{rows:#?}");
        }
    }
    let all = shown(&["report", "--limit", "3", "-i"], file, 80).text;
    assert!(all.contains("# no room for samples"), "{all}");
}

#[test]
fn serial_recursion_is_folded_in_trees() {
    let program = or_skip!(programs::c("recursion", &["-O0"]));
    let (_folder, file) = or_skip!(recorded(
        &["-g", "-F", "2000"],
        &program,
        &["100", "400000", "32"]
    ));
    let arguments = ["report", "--tree", "callees", "-i"];
    let whole = piped(&arguments, &file);
    let descents = whole
        .lines()
        .filter(|line| line.trim_end().ends_with("descend"))
        .count();
    assert!(descents > 50, "{whole}");
    let rows = shown(&arguments, &file, 100).rows();
    let of =
        |name: &str| -> Vec<&String> { rows.iter().filter(|row| row.contains(name)).collect() };
    // A sample before a function has set its frame pointer lacks the caller, so a short chain may stand beside the long one.
    let [descend] = of("descend (recursion")[..] else {
        panic!("{rows:#?}");
    };
    // As deep as it is by construction, below main.
    assert!(
        descend.contains("─descend (recursion, 100 deep)"),
        "{descend}"
    );
    assert_eq!(of("fib (recursion").len(), 1, "{rows:#?}");
    let is_below = |row: &&String| row.contains("│ └─bottom") || row.contains("  └─bottom");
    assert!(of("bottom").iter().any(is_below), "{rows:#?}");
    // Its share is that of its outermost call.
    let outermost = whole
        .lines()
        .find(|line| line.ends_with("descend"))
        .expect("a call");
    let share = |line: &str| line.split_whitespace().next().map(str::to_owned);
    assert_eq!(share(descend), share(outermost));
    // ASCII where the locale has no more.
    let mut command = dioptra(&arguments);
    command.arg(&file).arg("--no-pager").env("LANG", "C");
    let ascii = at_terminal(command, 100);
    assert!(
        ascii.text.contains("`-descend") || ascii.text.contains("|-descend"),
        "{}",
        ascii.text
    );
}

#[test]
fn serial_a_pager_shows_it_unless_refused() {
    let file = or_skip!(templates());
    let folder = tempfile::tempdir().expect("a folder");
    let seen = folder.path().join("seen");
    let pager = format!("cat > '{}'", seen.display());
    let run = |set: &[(&str, &str)], more: &[&str]| {
        let _ = std::fs::remove_file(&seen);
        let mut command = dioptra(&["report", "--limit", "2", "-i"]);
        command.arg(file).args(more);
        command.envs(set.iter().copied());
        let shown = at_terminal(command, 80);
        assert!(shown.status.success(), "{}", shown.text);
        (shown.text, std::fs::read_to_string(&seen).ok())
    };
    let is_table = |text: &str| text.contains("more rows");
    // DIOPTRA_PAGER before PAGER.
    for set in [
        &[("PAGER", pager.as_str())][..],
        &[("DIOPTRA_PAGER", &pager), ("PAGER", "false")],
    ] {
        let (text, seen) = run(set, &[]);
        assert_eq!(text, "");
        let seen = seen.expect("the pager ran");
        assert!(is_table(&seen) && seen.contains("\x1b["), "{seen}");
    }
    let (_, refused) = run(&[("PAGER", &pager)], &["--no-pager"]);
    assert_eq!(refused, None);
    for set in [
        [("PAGER", "cat")],
        [("PAGER", "")],
        // A pager that is not there, or that is left early, loses nothing and is no failure.
        [("PAGER", "/nowhere/pager")],
    ] {
        let (text, seen) = run(&set, &[]);
        assert!(is_table(&text) && seen.is_none(), "{text}");
    }
    run(&[("PAGER", "true")], &["--children"]);
    // Pipes have no pager.
    let output = dioptra(&["report", "-i"])
        .arg(file)
        .env("PAGER", &pager)
        .output();
    assert!(is_table_whole(&output.expect("it runs").stdout) && !seen.exists());
}

fn is_table_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.contains("function\n") && !text.contains('\x1b')
}

#[test]
fn serial_colours_are_for_who_wants_them() {
    let file = or_skip!(templates());
    let colored = |set: &[(&str, &str)], more: &[&str], terminal: bool| {
        let mut command = dioptra(&["report", "--event", "1", "-i"]);
        command.arg(file).arg("--no-pager").args(more);
        command.envs(set.iter().copied());
        let text = match terminal {
            true => at_terminal(command, 80).text,
            false => String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8"),
        };
        // Red is hot.
        assert_eq!(text.contains("\x1b[31m"), text.contains('\x1b'), "{text}");
        text.contains('\x1b')
    };
    assert!(colored(&[], &[], true));
    assert!(!colored(&[], &[], false));
    assert!(!colored(&[("NO_COLOR", "1")], &[], true));
    assert!(colored(&[("NO_COLOR", "")], &[], true));
    assert!(!colored(&[("TERM", "dumb")], &[], true));
    assert!(!colored(&[], &["--color", "never"], true));
    assert!(colored(&[("NO_COLOR", "1")], &["--color", "always"], true));
    assert!(colored(&[], &["--color", "always"], false));
}

#[test]
fn serial_rows_are_sorted_either_way() {
    let file = or_skip!(templates());
    let column = |sort: &str, column: usize| -> Vec<String> {
        let csv = piped(
            &[
                "report", "--event", "1", "--by", "module", "--format", "csv", "--sort", sort, "-i",
            ],
            file,
        );
        let lines = csv.lines().skip(1);
        lines
            .map(|line| line.split(',').nth(column).expect("a cell").to_owned())
            .collect()
    };
    let counts = |sort: &str| -> Vec<u64> {
        column(sort, 1)
            .iter()
            .map(|count| count.parse().expect("a count"))
            .collect()
    };
    let up = counts("samples:asc");
    assert!(
        up.is_sorted() && up.len() > 2 && up.first() < up.last(),
        "{up:?}"
    );
    assert!(counts("samples:desc").is_sorted_by(|one, other| one >= other));
    assert_eq!(counts("samples"), counts("samples:desc"));
    let names = column("module", 3);
    assert!(names.is_sorted());
    assert_eq!(column("module:asc", 3), names);
    assert!(column("module:desc", 3).is_sorted_by(|one, other| one >= other));
    let output = dioptra(&["report", "--sort", "samples:up", "-i"])
        .arg(file)
        .output();
    assert_eq!(output.expect("it runs").status.code(), Some(1));
}
