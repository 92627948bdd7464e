//! Flame graphs, call trees, callers and callees of a recording whose stacks are known.

use crate::client::{Running, escaped};
use crate::made::{SAMPLES, SCRIPT, made};
use serde_json::Value;

/// Paths of functions with own and total samples.
fn paths(flame: &Value) -> Vec<(String, u64, u64)> {
    let nodes = &flame["nodes"];
    let number = |list: &Value, at: usize| list[at].as_u64().expect("a number");
    let mut names: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for at in 0..nodes["id"].as_array().expect("nodes").len() {
        let function = number(&nodes["function"], at) as usize;
        let name = flame["functions"][function]["name"]
            .as_str()
            .expect("a name");
        let name = if name.len() > 100 { "long" } else { name };
        let path = match nodes["parent"][at].as_i64() {
            Some(parent @ 0..) => format!("{};{name}", names[parent as usize]),
            _ => name.to_owned(),
        };
        names.push(path.clone());
        let own = number(&nodes["own_samples"][0], at);
        found.push((path, own, number(&nodes["total_samples"][0], at)));
    }
    found
}

fn path(path: &str, own: u64, total: u64) -> (String, u64, u64) {
    (path.replace("evil", SCRIPT), own, total)
}

#[test]
fn callees_start_at_the_outermost_function() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let flame = web.ask("/api/flame?event=cpu-clock");
    let expected = [
        path("main", 0, 31),
        path("main;evil", 10, 26),
        path("main;evil;leaf", 15, 15),
        path("main;evil;long", 1, 1),
        path("main;leaf", 5, 5),
        path("leaf", 4, 4),
    ];
    assert_eq!(paths(&flame), expected);
    assert_eq!(flame["events"][0]["samples"], SAMPLES);
    assert_eq!(flame["total_nodes"], 6);
    // Weights are ten times as much.
    assert_eq!(flame["nodes"]["total"][0][0], 310);
    let of_thread = web.ask("/api/flame?event=cpu-clock&thread=43");
    assert_eq!(paths(&of_thread)[0], path("main", 0, 11));
}

#[test]
fn nodes_open_one_level_at_a_time() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let top = web.ask("/api/flame?event=cpu-clock&levels=1");
    assert_eq!(paths(&top), [path("main", 0, 31), path("leaf", 4, 4)]);
    assert_eq!(top["nodes"]["below"][0], 2);
    assert_eq!(top["left_out"]["weight"], 310);
    let main = top["nodes"]["id"][0].as_u64().expect("an id");
    let below = web.ask(&format!("/api/flame?event=cpu-clock&levels=1&root={main}"));
    let expected = [
        path("main", 0, 31),
        path("main;evil", 10, 26),
        path("main;leaf", 5, 5),
    ];
    assert_eq!(paths(&below), expected);
    let evil = below["nodes"]["id"][1].as_u64().expect("an id");
    let deep = web.ask(&format!("/api/flame?event=cpu-clock&root={evil}"));
    assert_eq!(paths(&deep)[0], path("evil", 10, 26));
    let above = &deep["above"][0];
    assert_eq!(above["id"], main);
    let function = above["function"].as_u64().expect("a number") as usize;
    assert_eq!(deep["functions"][function]["name"], "main");
    let few = web.ask("/api/flame?event=cpu-clock&count=2");
    assert_eq!(
        paths(&few),
        [path("main", 0, 31), path("main;evil", 10, 26)]
    );
    let heavy = web.ask("/api/flame?event=cpu-clock&least=5000");
    assert_eq!(paths(&heavy), paths(&few));
}

#[test]
fn callers_and_callees_of_one_function() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let inverted = web.ask("/api/flame?event=cpu-clock&direction=callers");
    let found = paths(&inverted);
    assert_eq!(found[0], path("leaf", 24, 24));
    assert!(found.contains(&path("leaf;evil;main", 0, 15)), "{found:?}");
    let key = |name: &str| {
        let functions = inverted["functions"].as_array().expect("functions");
        let function = functions.iter().find(|function| function["name"] == name);
        escaped(function.expect(name)["key"].as_str().expect("a key"))
    };
    let evil = key(SCRIPT);
    let callees = web.ask(&format!("/api/flame?event=cpu-clock&focus={evil}"));
    let expected = [
        path("evil", 10, 26),
        path("evil;leaf", 15, 15),
        path("evil;long", 1, 1),
    ];
    assert_eq!(paths(&callees), expected);
    let callers = web.ask(&format!(
        "/api/flame?event=cpu-clock&direction=callers&focus={evil}"
    ));
    assert_eq!(
        paths(&callers),
        [path("evil", 10, 26), path("evil;main", 0, 26)]
    );
    let leaf = key("leaf");
    let callers = web.ask(&format!(
        "/api/flame?event=cpu-clock&direction=callers&focus={leaf}"
    ));
    let expected = [
        path("leaf", 24, 24),
        path("leaf;evil", 0, 15),
        path("leaf;evil;main", 0, 15),
        path("leaf;main", 0, 5),
    ];
    assert_eq!(paths(&callers), expected);
}

/// The key of the only function with this name in an answer.
fn key_of(flame: &Value, name: &str) -> String {
    let functions = flame["functions"].as_array().expect("functions");
    let function = functions.iter().find(|function| function["name"] == name);
    escaped(function.expect(name)["key"].as_str().expect("a key"))
}

#[test]
fn changed_stacks_lose_no_sample_unsaid() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let all = web.ask("/api/flame?event=cpu-clock");
    let (main, evil, leaf) = (
        key_of(&all, "main"),
        key_of(&all, SCRIPT),
        key_of(&all, "leaf"),
    );
    assert_eq!(all["modules"][0]["kind"], "jit");
    assert!(all.get("changes").is_none());
    let merged = web.ask(&format!("/api/flame?event=cpu-clock&merge={evil}"));
    let expected = [
        path("main", 10, 31),
        path("main;leaf", 20, 20),
        path("main;long", 1, 1),
        path("leaf", 4, 4),
    ];
    assert_eq!(paths(&merged), expected);
    assert!(merged.get("changes").is_none());
    let bare = web.ask(&format!("/api/flame?event=cpu-clock&merge={leaf}"));
    let expected = [
        path("main", 5, 31),
        path("main;evil", 25, 26),
        path("main;evil;long", 1, 1),
    ];
    assert_eq!(paths(&bare), expected);
    assert_eq!(bare["changes"]["bare_samples"][0], 4);
    assert_eq!(bare["changes"]["bare_weight"][0], 40);
    let dropped = web.ask(&format!("/api/flame?event=cpu-clock&drop={evil}"));
    let expected = [
        path("main", 0, 5),
        path("main;leaf", 5, 5),
        path("leaf", 4, 4),
    ];
    assert_eq!(paths(&dropped), expected);
    assert_eq!(dropped["changes"]["dropped_samples"][0], 26);
    let inverted = web.ask(&format!(
        "/api/flame?event=cpu-clock&direction=callers&merge={evil}&focus={leaf}"
    ));
    assert_eq!(
        paths(&inverted),
        [path("leaf", 24, 24), path("leaf;main", 0, 20)]
    );
    // All functions of a module.
    let module = all["modules"][0]["key"].as_str().expect("a key");
    let module = escaped(module);
    let none = web.ask(&format!("/api/flame?event=cpu-clock&drop_module={module}"));
    let samples = |flame: &Value| -> u64 {
        let tops = paths(flame).into_iter();
        let tops = tops.filter(|(path, ..)| !path.contains(';'));
        tops.map(|(_, _, total)| total).sum()
    };
    let lost = none["changes"]["dropped_samples"][0].as_u64();
    assert_eq!(samples(&none) + lost.expect("a number"), SAMPLES);
    let folded = web.ask("/api/flame?event=cpu-clock&fold=all");
    assert_eq!(paths(&folded), paths(&all), "there is no recursion");
    let wrong = web.get(&format!("/api/flame?event=cpu-clock&merge={main}x"));
    assert_eq!(
        (wrong.status, wrong.code().as_str()),
        (404, "no_such_function")
    );
}

#[test]
fn paths_of_keys_name_nodes() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let all = web.ask("/api/flame?event=cpu-clock");
    let (main, evil, leaf) = (
        key_of(&all, "main"),
        key_of(&all, SCRIPT),
        key_of(&all, "leaf"),
    );
    let deep = web.ask(&format!(
        "/api/flame?event=cpu-clock&path={main}&path={evil}"
    ));
    let expected = [
        path("evil", 10, 26),
        path("evil;leaf", 15, 15),
        path("evil;long", 1, 1),
    ];
    assert_eq!(paths(&deep), expected);
    assert_eq!(deep["above"].as_array().map(Vec::len), Some(1));
    // As far as it goes.
    let path_of = |keys: &[&String]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("&path={key}")).collect();
        web.ask(&format!("/api/flame?event=cpu-clock{}", keys.concat()))
    };
    assert_eq!(
        paths(&path_of(&[&main, &leaf, &evil])),
        [path("leaf", 5, 5)]
    );
    assert_eq!(paths(&path_of(&[&evil, &leaf])), paths(&all));
    // Callers of one function, exact.
    let opened = web.ask(&format!(
        "/api/flame?event=cpu-clock&direction=callers&levels=1&least=0&path={leaf}"
    ));
    let expected = [
        path("leaf", 24, 24),
        path("leaf;evil", 0, 15),
        path("leaf;main", 0, 5),
    ];
    assert_eq!(paths(&opened), expected);
    assert_eq!(opened["nodes"]["below"], serde_json::json!([2, 1, 0]));
    let tops = web.ask("/api/flame?event=cpu-clock&direction=callers&levels=1&least=0");
    assert_eq!(paths(&tops).len(), 3);
    assert_eq!(tops["nodes"]["below"], serde_json::json!([2, 1, 1]));
}
