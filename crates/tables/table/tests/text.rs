//! Tables as people see them.

use dioptra_tables::{
    Cell, Column, ColumnKind, Direction, Format, RenderError, Severity, Table, TextOptions, Unit,
    display_width, write_text,
};

fn text(table: &Table, options: &TextOptions) -> String {
    let mut out = Vec::new();
    write_text(table, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn shown(table: &Table) -> String {
    text(table, &TextOptions::default())
}

fn functions() -> Table {
    let mut table = Table::new(vec![
        Column::new("self_percent", "self", ColumnKind::Ratio, Unit::Percent).of_event("cpu-clock"),
        Column::new("samples", "samples", ColumnKind::Count, Unit::Samples).of_event("cpu-clock"),
        Column::new("module", "module", ColumnKind::Name, Unit::None),
        Column::new("function", "function", ColumnKind::Name, Unit::None),
    ]);
    for (count, module, function) in [
        (700, "demo", "spin"),
        (258, "libc.so.6", "malloc"),
        (30, "demo", "main"),
        (12, "[kernel]", "page_fault"),
    ] {
        table
            .push(
                None,
                vec![
                    Cell::ratio(count, 1000),
                    Cell::Count(count),
                    Cell::name(module),
                    Cell::name(function),
                ],
            )
            .unwrap();
    }
    table
}

/// Returns the same table with other cells, by row and column.
fn changed<'a>(table: &'a Table, cell: impl Fn(u32, usize, Cell<'a>) -> Cell<'a>) -> Table {
    let mut other = Table::new(table.columns.clone());
    for row in table.rows() {
        let cells = row.cells().enumerate();
        let cells: Vec<_> = cells
            .map(|(column, old)| cell(row.id(), column, old))
            .collect();
        other.push(row.parent(), cells).unwrap();
    }
    other
}

#[test]
fn a_flat_table() {
    let mut table = functions();
    table
        .facts
        .add(Severity::Info, "samples", "1000 samples in 1.25 s", 1000);
    table.facts.add(
        Severity::Loss,
        "lost",
        "3 records were lost; use a larger buffer (-m)",
        3,
    );
    table.facts.add(
        Severity::Fallback,
        "event",
        "cycles cannot be counted here, cpu-clock was",
        "cpu-clock",
    );
    let expected = "\
# 1000 samples in 1.25 s
# event: cpu-clock
  self  samples  module     function
70.00%      700  demo       spin
25.80%      258  libc.so.6  malloc
 3.00%       30  demo       main
 1.20%       12  [kernel]   page_fault
# loss: 3 records were lost; use a larger buffer (-m)
# fallback: cycles cannot be counted here, cpu-clock was
";
    assert_eq!(shown(&table), expected);
}

#[test]
fn a_limit_says_what_it_leaves_out() {
    let table = functions();
    let limited = |limit| {
        let options = TextOptions {
            errors: true,
            limit: Some(limit),
            facts: false,
            heading: false,
        };
        text(&table, &options)
    };
    assert_eq!(
        limited(2),
        "70.00%  700  demo       spin\n25.80%  258  libc.so.6  malloc\n… 2 more rows, 4.20 %\n"
    );
    assert!(limited(3).ends_with("\n… 1 more row, 1.20 %\n"));
    assert_eq!(limited(0), "… 4 more rows, 100.00 %\n");
    assert!(!limited(4).contains('…'));
}

#[test]
fn several_events_stand_above_their_columns() {
    let column = |id: &str, name: &str, event: &str| {
        Column::new(id, name, ColumnKind::Count, Unit::Events).of_event(event)
    };
    let mut table = Table::new(vec![
        Column::new("tid", "tid", ColumnKind::Name, Unit::None),
        column("a_self", "self", "cycles"),
        column("a_total", "total", "cycles"),
        column("b_self", "self", "sched:sched_switch"),
        Column::new("function", "function", ColumnKind::Name, Unit::None),
    ]);
    for row in [[7, 12, 120, 3], [12345, 8, 80, 40]] {
        let mut cells: Vec<Cell> = row.into_iter().map(Cell::Count).collect();
        cells.push(Cell::name("f"));
        table.push(None, cells).unwrap();
    }
    let expected = "\
# event: cycles
# event: sched:sched_switch
       cycles ----  sched:sched_switch
  tid  self  total                self  function
    7    12    120                   3  f
12345     8     80                  40  f
";
    assert_eq!(shown(&table), expected);
}

#[test]
fn a_tree_is_indented() {
    let mut table = Table::new(vec![
        Column::new("time", "time", ColumnKind::Time, Unit::Nanoseconds),
        Column::new(
            "ipc",
            "ipc",
            ColumnKind::Ratio,
            Unit::Named("1/cycle".into()),
        ),
        Column::new("function", "function", ColumnKind::Name, Unit::None),
    ]);
    let mut row = |parent, time, ipc, name: &str| {
        table
            .push(parent, vec![Cell::Count(time), ipc, Cell::name(name)])
            .unwrap()
    };
    let main = row(None, 2_500_000, Cell::estimate(1.25, 0.01), "main");
    let quick = row(Some(main), 300, Cell::Empty, "quick");
    row(Some(main), 1_500, Cell::ratio(0, 0), "slow");
    row(Some(quick), 100, Cell::estimate(12.0, 0.5), "leaf");
    row(None, 9, Cell::Empty, "exit");
    let expected = "\
\x20   time  ipc [1/cycle]  function
2.500 ms   1.250 ±0.010  main
  300 ns                   quick
  100 ns  12.000 ±0.500      leaf
1.500 us              -    slow
    9 ns                 exit
";
    assert_eq!(shown(&table), expected);
    table.sort_by(0, Direction::Ascending).unwrap();
    let sorted = shown(&table);
    let names: Vec<&str> = sorted
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert_eq!(names, ["exit", "main", "quick", "leaf", "slow"]);
    let limited = text(
        &table,
        &TextOptions {
            limit: Some(1),
            ..TextOptions::default()
        },
    );
    assert!(
        limited.ends_with("… 1 more row (3 below them)\n"),
        "{limited}"
    );
}

#[test]
fn hostile_names_stay_on_their_line_and_in_their_column() {
    let evil = "evil\n\u{1b}[2J\r\t\u{202e}x";
    let mut table = changed(&functions(), |row, column, cell| match (row, column) {
        (1, 2) => Cell::name("関数e\u{301}"),
        (_, 2) | (2, 3) => Cell::name(evil),
        _ => cell,
    });
    table.columns[2].name = "mod\nule".into();
    table.columns[0].event = Some("ev\u{1b}ent".into());
    table
        .facts
        .add(Severity::Loss, "x", "from\u{1b}]0;title\u{7}", 1);
    let shown = shown(&table);
    assert!(
        shown
            .chars()
            .all(|character| character == '\n' || !character.is_control()),
        "{shown}"
    );
    assert!(!shown.contains('\u{202e}'));
    assert_eq!(shown.lines().filter(|line| line.contains('%')).count(), 4);
    assert!(shown.contains("evil\\n\\x1b[2J\\r\\t\\u{202e}x"));
    // The functions start in the same terminal column on each line, wide characters or not.
    let starts: Vec<usize> = ["spin", "malloc", "page_fault"]
        .iter()
        .map(|name| {
            let line = shown.lines().find(|line| line.ends_with(name)).unwrap();
            display_width(&line[..line.len() - name.len()])
        })
        .collect();
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
}

#[test]
fn no_line_ends_in_spaces_and_monsters_do_not_widen_their_column() {
    let table = changed(&functions(), |row, column, cell| match (row, column) {
        (0, 2) => Cell::name("m".repeat(5000)),
        (1, 3) => Cell::Empty,
        _ => cell,
    });
    let shown = shown(&table);
    assert!(shown.lines().all(|line| !line.ends_with(' ')));
    assert!(shown.lines().filter(|line| line.len() > 100).count() == 1);
    assert!(shown.contains(&"m".repeat(5000)), "nothing is cut off");
}

#[test]
fn a_recursion_thousands_of_calls_deep_stays_small() {
    let mut table = Table::new(vec![Column::new(
        "function",
        "function",
        ColumnKind::Name,
        Unit::None,
    )]);
    let mut parent = None;
    for _ in 0..5000 {
        parent = Some(table.push(parent, vec![Cell::name("recurse")]).unwrap());
    }
    let shown = shown(&table);
    assert!(shown.len() < 5000 * 100, "{}", shown.len());
    assert!(shown.ends_with("  [4999] recurse\n"));
}

#[test]
fn empty_tables() {
    let table = Table::new(functions().columns);
    assert_eq!(
        shown(&table),
        "# event: cpu-clock\nself  samples  module  function\n# no rows\n"
    );
    assert_eq!(shown(&Table::default()), "# no rows\n");
}

#[test]
fn a_wrong_table_writes_nothing_and_a_closed_pipe_is_known() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut table = functions();
    for format in [Format::Text, Format::Csv, Format::Json] {
        assert!(
            format
                .write(&mut table, None, Closed)
                .unwrap_err()
                .is_closed_pipe()
        );
    }
    table.columns.pop();
    for format in [Format::Text, Format::Csv, Format::Json] {
        let mut out = Vec::new();
        let error = format.write(&mut table, Some(1), &mut out).unwrap_err();
        assert!(matches!(error, RenderError::Table(_)));
        assert!(out.is_empty());
    }
}
