//! CSV and JSON lose nothing, and programs that are not ours can read them.

use std::io::Write;
use std::process::{Command, Stdio};

use dioptra_tables::{
    Cell, Column, ColumnKind, Format, Severity, Table, Unit, write_csv, write_json,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn csv(table: &Table) -> String {
    let mut out = Vec::new();
    write_csv(table, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn json_text(table: &Table) -> String {
    let mut out = Vec::new();
    write_json(table, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A table with a column of every kind.
fn everything() -> Table {
    let mut table = Table::new(vec![
        Column::new("self_percent", "self", ColumnKind::Ratio, Unit::Percent).of_event("cycles"),
        Column::new("period", "period", ColumnKind::Weight, Unit::Events)
            .of_event("cycles")
            .below(0),
        Column::new(
            "ipc",
            "IPC",
            ColumnKind::Ratio,
            Unit::Named("1/cycle".into()),
        ),
        Column::new("address", "address", ColumnKind::Address, Unit::None),
        Column::new("function", "function", ColumnKind::Name, Unit::None),
    ]);
    table
        .facts
        .add(Severity::Loss, "lost_records", "3 records were lost", 3);
    let root = table
        .push(
            None,
            vec![
                Cell::ratio(1, 3),
                Cell::Count(u64::MAX),
                Cell::estimate(0.1, 0.025),
                Cell::Address(0xffff_ffff_8100_0000),
                Cell::name("a,\"b\"\r\n\u{1b}"),
            ],
        )
        .unwrap();
    table
        .push(
            Some(root),
            vec![
                Cell::ratio(5, 0),
                Cell::Empty,
                Cell::real(1e300),
                Cell::Empty,
                Cell::name("=1+1"),
            ],
        )
        .unwrap();
    table
        .push(
            None,
            vec![
                Cell::Empty,
                Cell::real(2.5),
                Cell::real(f64::NAN),
                Cell::Empty,
                Cell::name(""),
            ],
        )
        .unwrap();
    table
}

#[test]
fn csv_of_everything() {
    let expected = "\
row_id,parent_row_id,self_percent,period,ipc,ipc_standard_error,address,function
0,,33.333333333333336,18446744073709551615,0.1,0.025,0xffffffff81000000,\"a,\"\"b\"\"\\r\\n\\x1b\"
1,0,,,1e300,,,'=1+1
2,,,2.5,,,,\"\"
";
    assert_eq!(csv(&everything()), expected);
}

#[test]
fn json_of_everything() {
    let text = json_text(&everything());
    let expected = json!({
        "schema": 1,
        "facts": {"lost_records": {"severity": "loss", "text": "3 records were lost", "value": 3}},
        "columns": [
            {"id": "self_percent", "name": "self", "unit": "percent", "kind": "ratio", "event": "cycles", "parent": null},
            {"id": "period", "name": "period", "unit": "events", "kind": "weight", "event": "cycles",
             "parent": "self_percent"},
            {"id": "ipc", "name": "IPC", "unit": "1/cycle", "kind": "ratio", "event": null, "parent": null},
            {"id": "address", "name": "address", "unit": null, "kind": "address", "event": null, "parent": null},
            {"id": "function", "name": "function", "unit": null, "kind": "name", "event": null, "parent": null},
        ],
        "rows": [
            {"id": 0, "parent": null,
             "cells": [100.0 / 3.0, u64::MAX, 0.1, "0xffffffff81000000", "a,\"b\"\r\n\u{1b}"],
             "ratios": {"self_percent": [1, 3]}, "standard_errors": {"ipc": 0.025}},
            {"id": 1, "parent": 0, "cells": [null, null, 1e300, null, "=1+1"], "ratios": {"self_percent": [5, 0]}},
            {"id": 2, "parent": null, "cells": [null, 2.5, null, null, ""]},
        ],
    });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    assert!(text.starts_with("{\"schema\":1,\n\"facts\":{"));
    assert_eq!(text.lines().count(), 12, "one line a row");
}

#[test]
fn small_csv() {
    let mut table = Table::new(vec![Column::new("x", "x", ColumnKind::Name, Unit::None)]);
    assert_eq!(csv(&table), "x\n");
    table.push(None, vec![Cell::name("a b\t")]).unwrap();
    assert_eq!(csv(&table), "x\na b\\t\n");
    let empty = json_text(&Table::default());
    assert_eq!(
        serde_json::from_str::<Value>(&empty).unwrap(),
        json!({"schema": 1, "facts": {}, "columns": [], "rows": []})
    );
}

/// Names that a program chose can be no formula of a spreadsheet, and move no cursor; numbers stay numbers.
#[test]
fn csv_of_hostile_names() {
    let mut table = Table::new(vec![
        Column::new("delta", "delta", ColumnKind::Weight, Unit::Events),
        Column::new("function", "function", ColumnKind::Name, Unit::None),
    ]);
    for name in [
        "=HYPERLINK(\"http://x\",\"y\")",
        "+1",
        "-[Object method]",
        "@SUM(A1)",
        "\t=1",
        "a\u{1b}[2J\u{202e}",
        "two\nlines",
        "operator=",
    ] {
        let delta = Cell::Difference {
            minuend: 1,
            subtrahend: 6,
        };
        table.push(None, vec![delta, Cell::name(name)]).unwrap();
    }
    let expected = "\
delta,function
-5,\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"
-5,'+1
-5,'-[Object method]
-5,'@SUM(A1)
-5,\\t=1
-5,a\\x1b[2J\\u{202e}
-5,two\\nlines
-5,operator=
";
    assert_eq!(csv(&table), expected);
    // JSON has the exact names.
    let json: Value = serde_json::from_str(&json_text(&table)).unwrap();
    assert_eq!(json["rows"][1]["cells"], json!([-5, "+1"]));
    assert_eq!(json["rows"][6]["cells"][1], "two\nlines");
}

#[test]
fn a_limit_becomes_a_fact() {
    let mut table = everything();
    let mut out = Vec::new();
    Format::Json.write(&mut table, Some(1), &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 2);
    assert_eq!(document["facts"]["rows_left_out"]["value"]["rows"], 1);
    assert_eq!(document["facts"]["rows_left_out"]["severity"], "info");
    assert!(!Format::Csv.shows_facts());
    assert!(Format::Json.shows_facts());
}

/// Runs a Python program on `input`. Returns `None`, and says so, if there is no Python here.
fn python(program: &str, input: &str) -> Option<String> {
    let child = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        dioptra_testprograms::skip("python3 is not installed");
        return None;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn python_reads_the_same_from_csv_and_json() {
    let read_csv = "import csv,io,json,sys\n\
        text=io.TextIOWrapper(sys.stdin.buffer,encoding='utf-8',newline='').read()\n\
        rows=list(csv.reader(io.StringIO(text,newline=''),strict=True))\n\
        print(json.dumps([dict(zip(rows[0],row)) for row in rows[1:]]))";
    let read_json = "import json,sys\n\
        table=json.loads(sys.stdin.buffer.read())\n\
        ids=[column['id'] for column in table['columns']]\n\
        print(json.dumps([dict(zip(ids,('' if c is None else c if type(c) is str else repr(c) \
        for c in row['cells']))) for row in table['rows']]))";
    let table = everything();
    let (Some(from_csv), Some(from_json)) = (
        python(read_csv, &csv(&table)),
        python(read_json, &json_text(&table)),
    ) else {
        return;
    };
    let from_csv: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&from_csv).unwrap();
    let from_json: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&from_json).unwrap();
    assert_eq!(from_csv.len(), 3);
    assert_eq!(from_json.len(), 3);
    for (csv_row, json_row) in from_csv.iter().zip(&from_json) {
        for (id, value) in json_row {
            let number = |value: &Value| value.as_str().unwrap().parse::<f64>();
            match (number(value), number(&csv_row[id])) {
                (Ok(a), Ok(b)) => assert_eq!(a.to_bits(), b.to_bits(), "{id}"),
                _ => assert_eq!(harmless(value.as_str().unwrap()), csv_row[id], "{id}"),
            }
        }
    }
    assert_eq!(from_csv[0]["period"], "18446744073709551615");
    assert_eq!(from_csv[0]["function"], "a,\"b\"\\r\\n\\x1b");
}

/// Returns a name as CSV has it.
fn harmless(name: &str) -> String {
    let escaped = dioptra_tables::escape(name);
    match name.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{escaped}"),
        _ => escaped,
    }
}

/// Reads CSV by the grammar of RFC 4180 and not by our writer; returns the fields of each record.
fn read_csv(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut characters) = (false, text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push(characters.next().unwrap())
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            other => field.push(other),
        }
    }
    assert!(!quoted && field.is_empty() && record.is_empty());
    records
}

fn cells() -> impl Strategy<Value = (String, u64, u64, u64, f64, Option<f64>)> {
    let name = prop_oneof![any::<String>(), "[\",\r\n=+@a-]{0,6}"];
    let error = prop::option::of(0.0..1e9_f64);
    (
        name,
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<f64>(),
        error,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn csv_and_json_give_back_every_cell(rows in prop::collection::vec(cells(), 0..12)) {
        let mut table = Table::new(vec![
            Column::new("name", "name", ColumnKind::Name, Unit::None),
            Column::new("count", "count", ColumnKind::Count, Unit::Events),
            Column::new("ratio", "ratio", ColumnKind::Ratio, Unit::PerThousand),
            Column::new("real", "real", ColumnKind::Ratio, Unit::None),
        ]);
        for (name, count, numerator, denominator, value, standard_error) in rows.clone() {
            let cells = vec![
                Cell::name(name),
                Cell::Count(count),
                Cell::ratio(numerator, denominator),
                Cell::Real { value, standard_error },
            ];
            table.push(None, cells).unwrap();
        }
        let records = read_csv(&csv(&table));
        let document: Value = serde_json::from_str(&json_text(&table)).unwrap();
        prop_assert_eq!(records.len(), rows.len() + 1);
        prop_assert_eq!(document["rows"].as_array().unwrap().len(), rows.len());
        let with_error = records[0].len() == 5;
        for (index, (name, count, numerator, denominator, value, error)) in rows.iter().enumerate() {
            let record = &records[index + 1];
            prop_assert_eq!(record.len(), records[0].len());
            prop_assert_eq!(&record[0], &harmless(name));
            prop_assert!(!record[0].contains(char::is_control));
            prop_assert_eq!(record[1].parse::<u64>().unwrap(), *count);
            prop_assert_eq!(record[3].parse::<f64>().ok(), value.is_finite().then_some(*value));
            if with_error {
                let expected = error.filter(|_| value.is_finite());
                prop_assert_eq!(record[4].parse::<f64>().ok(), expected);
            }
            let row = &document["rows"][index];
            prop_assert_eq!(row["cells"][0].as_str(), Some(name.as_str()));
            prop_assert_eq!(row["cells"][1].as_u64(), Some(*count));
            prop_assert_eq!(&row["ratios"]["ratio"], &json!([numerator, denominator]));
            // CSV and JSON write the same digits.
            let digits = |text: &str| text.parse::<f64>().ok();
            let ratio = (*denominator > 0).then(|| 1000.0 * *numerator as f64 / *denominator as f64);
            prop_assert_eq!(digits(&record[2]), ratio);
            prop_assert_eq!(row["cells"][2].is_null(), ratio.is_none());
        }
    }
}
