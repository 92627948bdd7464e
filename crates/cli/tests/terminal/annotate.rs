//! `dioptra annotate`.

use crate::{piped, shown, templates};
use dioptra_testprograms::or_skip;
use serde_json::Value;

/// The address of a line of an instruction.
fn address(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(":  ")?;
    let digits = before
        .rsplit(|last: char| !last.is_ascii_hexdigit())
        .next()?;
    u64::from_str_radix(digits, 16).ok()
}

#[test]
fn serial_a_screen_has_the_hottest_lines() {
    let file = or_skip!(templates());
    let arguments = ["annotate", "leaf(unsigned long)", "--event", "1", "-i"];
    let whole = piped(&arguments, file);
    let json: Value = serde_json::from_str(&piped(
        &[
            "annotate",
            "leaf(unsigned long)",
            "--event",
            "1",
            "--format",
            "json",
            "-i",
        ],
        file,
    ))
    .expect("JSON");
    let instructions = json["instructions"].as_array().expect("instructions");
    let all: Vec<u64> = whole.lines().filter_map(address).collect();
    assert_eq!(all.len(), instructions.len());
    assert!(whole.lines().count() > 250);
    let text = shown(&arguments, file, 120);
    let lines: Vec<String> = text
        .lines()
        .into_iter()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!((50..=110).contains(&lines.len()), "{}", text.text);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("instructions left out")),
        "{}",
        text.text
    );
    // The hottest ones are there.
    let mut heats: Vec<(u64, u64)> = instructions
        .iter()
        .map(|each| {
            let number = |value: &Value| value.as_u64().expect("a number");
            (
                number(&each["counts"][0]["weight"]),
                number(&each["virtual_address"]),
            )
        })
        .collect();
    heats.sort_unstable_by(|one, other| other.cmp(one));
    let here: Vec<u64> = lines.iter().filter_map(|line| address(line)).collect();
    for (weight, address) in &heats[..3] {
        assert!(
            *weight == 0 || here.contains(address),
            "{address:x}: {}",
            text.text
        );
    }
    // Chains of inlined calls are folded.
    let chains = |lines: &str| {
        lines
            .lines()
            .filter(|line| line.contains("inlined at"))
            .count()
    };
    assert!(
        whole
            .lines()
            .any(|line| line.matches("inlined at").count() > 2)
    );
    assert!(chains(&text.text) > 0);
    assert!(
        text.lines()
            .iter()
            .all(|line| line.matches("inlined at").count() < 2)
    );
    // Everything for who asks.
    let mut arguments = arguments.to_vec();
    arguments.insert(1, "--all");
    let text = shown(&arguments, file, 200);
    let here: Vec<u64> = text
        .lines()
        .iter()
        .filter_map(|line| address(line))
        .collect();
    assert_eq!(here, all);
}
