//! The browser in a terminal.

use crate::made::{Made, PROGRAM, script, scripted, trace};
use crate::session::{PATIENCE, Session};
use rustix::process::{Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// The browser of a trace.
fn start(made: &Made, arguments: &str, rows: u16, columns: u16) -> Session {
    let mut command = Command::new(PROGRAM.expect("the program"));
    command
        .args(["trace", "tui", "-d"])
        .arg(made.folder())
        .args(arguments.split_whitespace());
    Session::start(command, rows, columns)
}

fn made() -> Made {
    trace(&[
        (7, script("main( a( b ) c( d( e ) d ) b )", 1_000, 1_000)),
        (8, script("t( w w( a( b ) ) )", 1_500, 2_000)),
    ])
}

/// The lines that hold numbers, without those that are only there to look nice.
fn of_text(output: &str) -> Vec<String> {
    let lines = output.lines().map(|line| line.trim_end().to_owned());
    let is_content = |line: &String| {
        let after = line
            .split_once(" :")
            .map_or(line.as_str(), |(_, after)| after);
        !line.starts_with("# Function")
            && !line.contains("====")
            && after.contains(char::is_alphanumeric)
    };
    lines.filter(is_content).collect()
}

#[test]
fn it_shows_what_graph_and_report_show() {
    let made = made();
    let mut session = start(&made, "-f total,self", 40, 100);
    session.wait_for("q: quit");
    assert_eq!(
        session.lines(),
        of_text(&made.shown("graph", "-f total,self"))
    );
    session.press("/b\r");
    session.wait_for("/b: match 1 of 3");
    session.press("g");
    session.wait_for("graph of b");
    let expected = of_text(&made.shown("graph", "-f total,self b"));
    let mut lines = session.lines();
    // The heading is at the top here, between the parts there.
    let heading = lines.remove(0);
    assert!(expected.contains(&heading));
    let expected: Vec<String> = expected
        .into_iter()
        .filter(|line| *line != heading)
        .collect();
    assert_eq!(lines, expected);
    session.press("R");
    session.wait_for("by Total time");
    assert_eq!(session.lines(), of_text(&made.shown("report", "")));
    session.press("ss");
    session.wait_for("by Calls");
    assert_eq!(session.lines(), of_text(&made.shown("report", "-s call")));
    session.press("t");
    session.wait_for("replay: line 1 of");
    assert_eq!(session.lines(), of_text(&made.shown("replay", "")));
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn it_takes_the_arguments_of_the_other_readers() {
    let made = made();
    let arguments = "--report -s self -f +size -F c -N e --tid 7";
    let mut session = start(&made, arguments, 24, 80);
    session.wait_for("by Self time");
    let expected = of_text(&made.shown("report", &arguments["--report ".len()..]));
    assert_eq!(session.lines(), expected);
    session.press("G");
    session.wait_for("graph of program");
    let expected = of_text(&made.shown("graph", "-F c -N e --tid 7"));
    assert_eq!(session.lines(), expected);
    session.press("\u{3}");
    assert_eq!(session.end().signal(), Some(2));
}

#[test]
fn signals_find_the_terminal_as_it_was() {
    let made = made();
    let mut session = start(&made, "", 24, 80);
    session.wait_for("q: quit");
    assert!(!session.is_restored());
    kill_process(session.pid(), Signal::TERM).expect("it is there");
    assert_eq!(session.end().signal(), Some(15));
}

#[test]
fn it_stops_and_goes_on() {
    let made = made();
    let mut session = start(&made, "", 24, 80);
    for by_key in [true, false] {
        session.wait_for("q: quit");
        match by_key {
            true => session.press("\u{1a}"),
            false => kill_process(session.pid(), Signal::TSTP).expect("it is there"),
        }
        session.wait("the main screen", |screen| !screen.alternate_screen());
        let stat = format!("/proc/{}/stat", session.child.id());
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&stat).expect("a process");
            if text.contains(") T ") {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(session.is_restored());
        kill_process(session.pid(), Signal::CONT).expect("it is there");
        session.wait("its own screen", vt100::Screen::alternate_screen);
    }
    session.wait_for("q: quit");
    session.press("jq");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn it_fits_a_terminal_that_changes_its_size() {
    let made = made();
    let mut session = start(&made, "", 24, 80);
    session.wait_for("q: quit");
    session.resize(6, 60);
    session.wait("a footer in the last line", |screen| {
        screen
            .contents()
            .lines()
            .nth(5)
            .is_some_and(|line| line.ends_with("q: quit"))
    });
    assert_eq!(session.lines().len(), 5);
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn it_needs_a_terminal() {
    let output = scripted("main( a )").run("tui", "");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("standard output is no terminal"),
        "{errors}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn numbers_that_are_scaled_are_marked() {
    let made = scripted("main( a( b ) a( b ) a( b ) a( b ) a( b ) )");
    let mut session = start(&made, "-F a@sample=2", 24, 100);
    session.wait_for("numbers are scaled from sampled calls (marked ~)");
    let mut lines = session.lines();
    assert!(
        lines
            .pop()
            .is_some_and(|fact| fact.starts_with("numbers are scaled"))
    );
    assert_eq!(lines, of_text(&made.shown("graph", "-F a@sample=2")));
    assert!(
        lines.iter().any(|line| line.contains("(~5) a")),
        "{lines:?}"
    );
    session.press("R");
    session.wait_for("by Total time");
    let mut lines = session.lines();
    assert!(
        lines
            .pop()
            .is_some_and(|fact| fact.starts_with("estimates, marked ~"))
    );
    assert_eq!(lines, of_text(&made.shown("report", "-F a@sample=2")));
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}
