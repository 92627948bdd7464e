//! Flame graphs: an XML parser reads them, and their frames add up.

use crate::support::{by_function, done, inlined, inside, report};
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Prints each frame of an SVG file: depth, left edge, value, title.
const READER: &str = r#"
import json, sys
import xml.etree.ElementTree as tree
space = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == space + "svg"
frames = [g for g in root.iter(space + "g") if g.get("class") == "frame"]
print(json.dumps([[int(g.get("data-d")), int(g.get("data-l")), int(g.get("data-v")),
                   g.find(space + "title").text] for g in frames]))
"#;

#[test]
fn frames_add_up_and_lie_on_their_callers() {
    or_skip!(programs::need_tool("python3"));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "flamegraph", "-e", "cpu-clock"]);
    let output = Command::new("python3")
        .args(["-c", READER])
        .arg(inside(&recorded, "flamegraph.svg"))
        .output()
        .expect("python runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let frames: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let frames: Vec<(u64, u64, u64, &str)> = frames
        .as_array()
        .expect("frames")
        .iter()
        .map(|frame| {
            let number = |place: usize| frame[place].as_u64().expect("a number");
            (
                number(0),
                number(1),
                number(2),
                frame[3].as_str().expect("a title"),
            )
        })
        .collect();
    let rows = report(folder, &["--inline", "-e", "cpu-clock"]);
    let expected = by_function(&rows, "weight");
    let whole: u64 = expected.values().sum();
    assert_eq!(
        &frames[0],
        &(0, 0, whole, &*format!("all ({whole} ns, 100.00 %)"))
    );
    // A frame's own value is what its callees leave, whatever is too narrow to draw included.
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for (depth, left, value, title) in &frames {
        let inside = |other: &&(u64, u64, u64, &str)| {
            other.0 == depth + 1 && *left <= other.1 && other.1 + other.2 <= left + value
        };
        let called: u64 = frames.iter().filter(inside).map(|frame| frame.2).sum();
        assert!(called <= *value, "{title}");
        if *depth > 0 {
            let caller = frames.iter().find(|other| {
                other.0 == depth - 1 && other.1 <= *left && left + value <= other.1 + other.2
            });
            assert!(caller.is_some(), "{title} lies on nothing");
        }
        let (name, _) = title.rsplit_once(" (").expect("a value");
        *own.entry(name.to_owned()).or_default() += value - called;
    }
    assert_eq!(own["step"], expected["step"]);
}

#[test]
fn the_script_runs_in_a_browser() {
    let chromium = or_skip!(programs::need_tool("chromium"));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "flamegraph", "-e", "cpu-clock"]);
    let output = Command::new("timeout")
        .arg("60")
        .arg(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!(
            "--user-data-dir={}",
            inside(&recorded, "browser").display()
        ))
        .arg(format!(
            "file://{}",
            inside(&recorded, "flamegraph.svg").display()
        ))
        .env("HOME", folder)
        .output()
        .expect("chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    // The script shows what only works with it.
    assert!(dom.contains(r#"id="search" class="">search"#), "{dom}");
    assert!(dom.contains(r#"id="reset" class="hidden""#), "{dom}");
}
