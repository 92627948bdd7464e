//! Keys and generations when files change, and files that are none.

use crate::client::{Running, column, escaped};
use crate::made::{SAMPLES, made, recording};
use serde_json::Value;

/// All keys of the rows of a table.
fn keys(web: &Running, by: &str) -> Vec<Value> {
    let table = web.ask(&format!("/api/table?by={by}&event=cpu-clock"));
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["key"].clone()).collect()
}

#[test]
fn keys_survive_a_new_server() {
    let made = made();
    let all = |web: &Running| -> Vec<Vec<Value>> {
        let levels = [
            "function", "module", "process", "thread", "program", "cpu", "comm",
        ];
        levels.iter().map(|by| keys(web, by)).collect()
    };
    let first = {
        let web = Running::start(&[&made.file], Some(made.symfs()));
        all(&web)
    };
    let web = Running::start(&[&made.file], Some(made.symfs()));
    assert_eq!(all(&web), first);
    for key in &first[0] {
        let key = key["function"].as_str().expect("a key");
        let answer = web.ask(&format!("/api/function?function={}", escaped(key)));
        assert_eq!(answer["function"]["key"], key);
    }
}

#[test]
fn a_changed_file_is_shown_anew() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let samples = |web: &Running| -> u64 {
        let table = web.ask("/api/table?event=cpu-clock");
        column(&table, "samples")
            .iter()
            .filter_map(Value::as_u64)
            .sum()
    };
    assert_eq!(samples(&web), SAMPLES);
    let before = keys(&web, "function");
    let generation = |status: &Value| status["profiles"][0]["generation"].as_u64();
    let status = web.ask("/api/status");
    assert_eq!(generation(&status), Some(1));
    // As recorders do: another file takes the name.
    let new = made.folder.path().join("new");
    std::fs::write(&new, recording(20)).expect("a recording");
    std::fs::rename(&new, &made.file).expect("renamed");
    let after = web.wait_for(|status| generation(status) == Some(2));
    assert!(after["revision"].as_u64() > status["revision"].as_u64());
    assert_eq!(samples(&web), 20);
    assert_eq!(web.get("/api/table?generation=1").code(), "stale");
    assert_eq!(web.get("/api/table?generation=2").status, 200);
    let after = keys(&web, "function");
    assert!(
        after.iter().all(|key| before.contains(key)),
        "{after:?} {before:?}"
    );
    // A file that is no profile any more leaves the last profile in place.
    std::fs::write(&made.file, "no profile").expect("written");
    let status = web.wait_for(|status| status["profiles"][0]["error"].is_object());
    assert_eq!(status["profiles"][0]["state"], "ready");
    assert_eq!(samples(&web), 20);
}

#[test]
fn a_status_is_waited_for() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let status = web.ask("/api/status");
    let revision = status["revision"].as_u64().expect("a number");
    let now = web.ask(&format!("/api/status?wait={}", revision + 1));
    assert_eq!(now["revision"], revision);
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| web.ask(&format!("/api/status?wait={revision}")));
        std::fs::write(&made.file, recording(3)).expect("written");
        waiting.join().expect("an answer")
    });
    assert!(waiting["revision"].as_u64() > Some(revision));
}

#[test]
fn several_files_and_what_is_none() {
    let made = made();
    let other = made.folder.path().join("other.data");
    std::fs::write(&other, recording(5)).expect("a recording");
    let none = made.folder.path().join("none");
    std::fs::write(&none, "hello").expect("a file");
    let web = Running::start(&[&made.file, &none, &other], Some(made.symfs()));
    let status = web.ask("/api/status");
    let states: Vec<&Value> = (0..3).map(|at| &status["profiles"][at]["state"]).collect();
    assert_eq!(states, ["ready", "failed", "ready"]);
    assert_eq!(web.get("/api/table?profile=1").code(), "load_failed");
    let table = web.ask("/api/table?profile=2&event=cpu-clock");
    assert_eq!(table["profile"], 2);
    assert_eq!(column(&table, "samples"), [5]);
}
