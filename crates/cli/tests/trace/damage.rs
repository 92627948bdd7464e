//! Damaged traces: messages name everything that is missing.

use crate::made::{Step, script, scripted, trace, trace_in_chunks};
use dioptra_tracelayout::record::UnwindCause;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

fn enter(time: u64, name: &str) -> Step {
    Step::Enter(time, name.to_owned())
}

#[test]
fn times_of_a_clock_that_was_read_once_are_ticks() {
    let made = scripted("main( a )");
    let path = made.folder().join("info.json");
    let mut info: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    info["clock"]["source"] = "tsc".into();
    info.as_object_mut().unwrap().remove("ending");
    std::fs::write(&path, info.to_string()).unwrap();
    let shown = made.shown("replay", "");
    // A step takes 1000 ticks.
    assert!(shown.contains("   1000 tk [     7] |   a();\n"), "{shown}");
    assert!(!shown.contains(" us "), "{shown}");
    let report = made.shown("report", "");
    assert!(
        report.contains("   3000 tk     2000 tk           1  main\n"),
        "{report}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&made.shown("report", "--format json")).unwrap();
    let columns = json["columns"].as_array().unwrap();
    let total = columns
        .iter()
        .find(|column| column["id"] == "total")
        .unwrap();
    assert_eq!(total["unit"], "ticks", "{total}");
    assert!(made.shown("graph", "").contains("   3000 tk : (1) main"));
}

#[test]
fn lost_records_are_shown_in_place_and_told() {
    let steps = vec![
        enter(1_000, "main"),
        enter(2_000, "a"),
        Step::Lost(5),
        Step::Leave(3_000),
        Step::Leave(4_000),
    ];
    let made = trace(&[(7, steps)]);
    let output = made.run("replay", "-f none");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "main() {\n  a() {\n    /* LOST 5 records!! */\n  } /* a */\n} /* main */\n"
    );
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("# loss: 5 records are missing"), "{told}");
    for command in ["report", "graph", "dump"] {
        let told = made.run(command, "").stderr;
        assert!(
            String::from_utf8_lossy(&told).contains("5 records are missing"),
            "{command}"
        );
    }
    let json = made.shown("report", "--format json");
    assert!(json.contains("lost_records"), "{json}");
}

#[test]
fn calls_that_did_not_return_are_marked() {
    let steps = vec![
        enter(1_000, "main"),
        enter(2_000, "a"),
        enter(3_000, "b"),
        Step::Unwound(4_000, UnwindCause::Exception, 2),
        enter(5_000, "c"),
        Step::Unwound(6_000, UnwindCause::Jump, 1),
        Step::Leave(7_000),
    ];
    assert_eq!(
        trace(&[(7, steps)]).calls(""),
        "main() {\n  a() {\n    b(); /* left by an exception */\n  } /* a: left by an exception */\n  c(); /* jumped out of */\n} /* main */\n"
    );
}

#[test]
fn open_calls_are_listed_at_the_end() {
    let steps = vec![
        enter(1_000, "main"),
        enter(2_000, "a"),
        enter(3_000, "b"),
        Step::Leave(4_000),
    ];
    let made = trace(&[(7, steps)]);
    assert_eq!(
        made.calls(""),
        "main() {\n  a() {\n    b();\n\ndioptra stopped tracing with remaining functions\n\
         ================================================\ntask: 7\n[1] a\n[0] main\n"
    );
    let report = made.shown("report", "--format csv -f total,call -s func");
    assert_eq!(
        report,
        "function,function_id,total,calls\na,2,2000,1\nb,3,1000,1\nmain,1,3000,1\n"
    );
}

#[test]
fn a_recording_without_an_end_and_cut_off_is_read_so_far() {
    let steps = script(&format!("main( {} )", "a( b ) ".repeat(100)), 1_000, 10);
    let made = trace_in_chunks(&[(7, steps)], 50);
    let records = made.folder().join("records");
    let bytes = fs::read(&records).expect("records");
    fs::write(&records, &bytes[..bytes.len() - 30]).expect("a cut");
    let whole = scripted("main( a )");
    assert!(!String::from_utf8_lossy(&whole.run("report", "").stderr).contains("loss"));
    let output = made.run("report", "");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success());
    assert!(told.contains("cut off"), "{told}");
    let info = made.folder().join("info.json");
    let mut json: serde_json::Value =
        serde_json::from_slice(&fs::read(&info).expect("info")).expect("JSON");
    json.as_object_mut().expect("an object").remove("ending");
    fs::write(&info, json.to_string()).expect("info");
    let told = made.run("report", "").stderr;
    assert!(String::from_utf8_lossy(&told).contains("the recording has no end"));
}

#[test]
fn calls_of_chunks_that_are_gone_begin_where_the_records_do() {
    let steps = script("main( a( b b b b ) a( b ) )", 1_000, 1_000);
    let made = trace_in_chunks(&[(7, steps)], 4);
    let records = made.folder().join("records");
    let bytes = fs::read(&records).expect("records");
    let first = u32::from_le_bytes(bytes[4..8].try_into().expect("a size")) as usize;
    fs::write(&records, &bytes[first..]).expect("a cut");
    let shown = made.calls("");
    assert_eq!(
        shown,
        "    b();\n    b();\n    b();\n  } /* a */\n  a() {\n    b();\n  } /* a */\n} /* main */\n"
    );
    let report = made.shown("report", "--format csv -f call -s func");
    assert_eq!(
        report,
        "function,function_id,calls\na,2,1\nb,3,4\nmain,1,0\n"
    );
}

#[test]
fn coroutines_have_a_stack_each() {
    let steps = vec![
        enter(1_000, "main"),
        Step::Stack(2_000, 1),
        enter(3_000, "co"),
        Step::Stack(4_000, 0),
        enter(5_000, "a"),
        Step::Leave(6_000),
        Step::Stack(7_000, 1),
        Step::Leave(8_000),
        Step::Stack(9_000, 0),
        Step::Leave(10_000),
    ];
    let made = trace(&[(7, steps)]);
    for rules in ["", "-N zzz"] {
        let report = made.shown(
            "report",
            &format!("--format csv -f total,self -s func {rules}"),
        );
        assert_eq!(
            report,
            "function,function_id,total,self\na,3,1000,1000\nco,2,5000,5000\nmain,1,9000,8000\n",
            "{rules}"
        );
    }
}

#[test]
fn a_count_that_passed_below_zero_is_told_as_unknown() {
    let made = scripted("main( a )");
    let info = made.folder().join("info.json");
    let text = fs::read_to_string(&info).expect("info");
    let wrong = text.replace(
        "\"missed_in_handlers\": 0",
        "\"missed_in_handlers\": 18446744073709551614",
    );
    assert_ne!(text, wrong);
    fs::write(&info, wrong).expect("info");
    for command in ["replay", "report", "graph"] {
        let told = made.run(command, "").stderr;
        let told = String::from_utf8_lossy(&told);
        assert!(
            told.contains("an unknown number of calls in signal handlers was not recorded"),
            "{command}: {told}"
        );
        assert!(!told.contains("1844674407370955161"), "{command}: {told}");
    }
    let json = made.shown("info", "--format json");
    assert!(!json.contains("1844674407370955161"), "{json}");
}

#[test]
fn records_that_are_truncated_while_they_are_shown_are_told() {
    const LEFT: u64 = 100_000;
    let steps = script(&format!("main( {} )", "a( b ) ".repeat(100_000)), 1_000, 10);
    let made = trace(&[(7, steps)]);
    let records = made.folder().join("records");
    assert!(fs::metadata(&records).expect("records").len() > 5 * LEFT);
    let mut replay = Command::new(crate::made::PROGRAM.expect("known to integration tests"))
        .args(["trace", "replay", "-d"])
        .arg(made.folder())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dioptra runs");
    // The command has begun, and goes on when the pipe is read.
    let mut output = replay.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 4096]).expect("a start");
    std::thread::sleep(Duration::from_millis(200));
    let file = fs::OpenOptions::new().write(true).open(&records);
    file.and_then(|file| file.set_len(LEFT)).expect("a cut");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    let mut told = String::new();
    let errors = replay.stderr.as_mut().expect("a pipe");
    errors.read_to_string(&mut told).expect("text");
    let status = replay.wait().expect("an end");
    assert_eq!(status.code(), Some(1), "{status}: {told}");
    let expected = format!(
        "records was truncated while it was read: from byte {LEFT} on its content is missing"
    );
    assert!(told.contains(&expected), "{told}");
}
