//! Tests of the browser without a terminal.

// Traces that tests of the whole program make, too; the browser's tests do not use all of it.
#[allow(dead_code)]
#[path = "../../../../tests/trace/made.rs"]
mod made;

#[allow(dead_code)]
#[path = "../../../../tests/trace/session.rs"]
mod session;

use super::app::{App, Browsed, ReportOptions, ScreenAction};
use super::draw::{Look, draw};
use super::keys::{Command, HELP, command};
use super::page::Page;
use super::replay_page::ReplayPage;
use super::{Field, Lines, graph, press};
use crate::full_screen::Screen;
use dioptra_calls::{Demangle, FunctionNames, View, ViewSelection, call_tree};
use dioptra_symbols::SymbolOptions;
use dioptra_tracedata::Trace;
use made::{Made, Step, script, scripted, trace};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Runs a test with a browser of a trace.
fn browse(made: &Made, test: impl FnOnce(&mut App<'_, '_>)) {
    let trace = Trace::open(made.folder()).expect("a trace");
    let names = FunctionNames::new(&trace, SymbolOptions::default(), Demangle::Simple);
    let view = View::new(&names, ViewSelection::default()).expect("a view");
    let lines = Lines::new(&names, &view, vec![graph::Field::Total]);
    let options = ReportOptions::parse(None, None).expect("defaults");
    let browsed = Browsed {
        names: &names,
        view: &view,
        replay_fields: Field::usual(None),
    };
    test(&mut App::new(browsed, call_tree(&view), lines, options));
}

/// Presses keys: each letter is a key, `\n` is Enter, `^` is Escape.
fn keys(app: &mut App<'_, '_>, text: &str) -> ScreenAction {
    let mut wanted = ScreenAction::Draw;
    for letter in text.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '^' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        wanted = press(app, &KeyEvent::new(code, KeyModifiers::NONE));
        while let ScreenAction::Wait(_) = wanted {
            wanted = app.finish();
        }
    }
    wanted
}

/// Returns the screen's lines.
fn screen(app: &mut App<'_, '_>, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a backend");
    let look = Look { colored: true };
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(app, look, area, frame.buffer_mut());
        })
        .expect("no error");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(move |x| buffer[(x, y)].symbol());
    (0..height)
        .map(|y| row(y).collect::<String>().trim_end().to_owned())
        .collect()
}

/// Returns the lines of the page, without fields; the mark of folds is in front.
fn texts(app: &mut App<'_, '_>) -> Vec<String> {
    let (page, lines) = app.page();
    (0..page.count())
        .map(|place| page.line(place, lines))
        .map(|line| {
            let mark = line.fixed.chars().next_back();
            let mark = mark.filter(|_| line.fixed.contains(" :"));
            mark.map(String::from).unwrap_or_default() + &line.text + &line.fold
        })
        .collect()
}

/// Returns the text of the current line.
fn current(app: &mut App<'_, '_>) -> String {
    let (page, lines) = app.page();
    let at = page.cursor().at;
    page.line(at, lines).text.trim().to_owned()
}

#[test]
fn the_screen_has_a_heading_lines_and_a_footer() {
    browse(&scripted("main( a( b ) c( d( e ) d ) )"), |app| {
        assert_eq!(
            screen(app, 46, 12),
            [
                "# TOTAL TIME   FUNCTION",
                "   13.000 us : (1) program",
                "   13.000 us : (1) main",
                "    3.000 us :  +-(1) a",
                "    1.000 us :  | (1) b",
                "    7.000 us :  +-(1) c",
                "    4.000 us :    (2) d",
                "    1.000 us :    (1) e",
                "",
                "",
                "",
                "graph of program: line 1 of 7 h: help  q: quit",
            ]
        );
        // A smaller screen leaves parts out.
        assert_eq!(
            screen(app, 20, 2),
            ["   13.000 us : (1) p", "graph of program: l…"]
        );
        assert_eq!(screen(app, 5, 1), ["   13"]);
    });
}

#[test]
fn calls_fold() {
    browse(&scripted("main( a( b( x ) ) c( d( e ) d ) )"), |app| {
        let all = texts(app);
        keys(app, "jj\n");
        assert_eq!(
            texts(app),
            [
                " (1) program",
                " (1) main",
                "+ +-(1) a  [+2]",
                "  +-(1) c",
                "    (2) d",
                "    (1) e"
            ]
        );
        // Only b can be folded among the program's children.
        keys(app, "kc");
        assert_eq!(
            texts(app),
            [
                " (1) program",
                " (1) main",
                "+ +-(1) a  [+2]",
                "+ +-(1) c  [+2]"
            ]
        );
        keys(app, "kC");
        assert_eq!(texts(app), [" (1) program", "+(1) main  [+6]"]);
        keys(app, "je");
        assert_eq!(texts(app).len(), 6, "b and d are still folded");
        keys(app, "E");
        assert_eq!(texts(app), all);
        // A leaf can't be folded.
        keys(app, "jjj");
        assert_eq!(current(app), "| (1) x");
        keys(app, "\n");
        assert_eq!(texts(app), all);
    });
}

#[test]
fn one_walks_among_callers_and_callees() {
    browse(&scripted("main( a( b ) c( d( e ) d ) f )"), |app| {
        let mut walk = |text: &str| {
            keys(app, text);
            (current(app), app.message.clone())
        };
        assert_eq!(walk("l").0, "(1) main");
        assert_eq!(walk("l").0, "+-(1) c");
        assert_eq!(walk("p").0, "+-(1) a");
        assert_eq!(walk("p").1, "no more calls of this caller");
        assert_eq!(walk("nn").0, "+-(1) f");
        assert_eq!(walk("n").1, "no more calls of this caller");
        assert_eq!(walk("l").1, "nothing below");
        assert_eq!(walk("u").0, "(1) main");
        assert_eq!(walk("u").0, "(1) program");
        assert_eq!(walk("u").1, "nothing above");
    });
}

#[test]
fn searches_open_folds() {
    browse(
        &scripted("main( apple( bee ) c( d( bean ) Bee ) )"),
        |app| {
            keys(app, "C/be\n");
            assert_eq!(current(app), "| (1) bee");
            assert_eq!(app.message, "/be: match 1 of 3");
            keys(app, ">");
            assert_eq!(current(app), "| (1) bean");
            keys(app, "N");
            assert_eq!(current(app), "+-(1) Bee");
            assert_eq!(app.message, "/be: match 3 of 3");
            // Searches go round at the last match, and back.
            keys(app, ">");
            assert_eq!(current(app), "| (1) bee");
            keys(app, "<");
            assert_eq!(current(app), "+-(1) Bee");
            // An empty search repeats the last one; Escape cancels a search.
            keys(app, "/\n");
            assert_eq!(app.message, "/be: match 3 of 3");
            keys(app, "/zz^k");
            assert_eq!(app.message, "");
            keys(app, "/B\n");
            assert_eq!(app.message, "/B: match 1 of 1");
            keys(app, "/Bx\n");
            assert_eq!(app.message, "/Bx: no match");
        },
    );
}

#[test]
fn one_function_has_backtraces_and_a_graph() {
    browse(&scripted("main( a( b( c ) ) b( c b( d ) ) )"), |app| {
        keys(app, "/b\ng");
        assert_eq!(
            texts(app),
            [
                " backtrace #0: hit 1, time   7.000 us",
                "   [0] main",
                "   [1] b",
                "",
                " backtrace #1: hit 1, time   3.000 us",
                "   [0] main",
                "   [1] a",
                "   [2] b",
                "",
                " (2) b",
                "  +-(2) c",
                "  +-(1) b",
                "    (1) d",
            ]
        );
        assert_eq!(current(app), "(2) b");
        // The key g works on a line of a backtrace; going back returns to the same line of the first graph.
        keys(app, "kkkg");
        assert_eq!(current(app), "(1) a");
        keys(app, "^");
        assert_eq!(current(app), "| (1) b");
        keys(app, "g");
        assert_eq!(current(app), "(2) b");
        keys(app, "G");
        assert_eq!(current(app), "| (1) b");
    });
}

#[test]
fn the_report_is_sorted_and_has_fields() {
    browse(&scripted("main( a( b ) c( d( e ) d ) )"), |app| {
        keys(app, "lll");
        assert_eq!(current(app), "(2) d");
        keys(app, "r");
        assert_eq!(
            screen(app, 60, 10),
            [
                "  Total time   Self time       Calls  Function",
                "   13.000 us    3.000 us           1  main",
                "    7.000 us    3.000 us           1  c",
                "    4.000 us    3.000 us           2  d",
                "    3.000 us    2.000 us           1  a",
                "    1.000 us    1.000 us           1  b",
                "    1.000 us    1.000 us           1  e",
                "",
                "",
                "report: line 3 of 6, by Total time          h: help  q: quit",
            ]
        );
        keys(app, "sss");
        assert_eq!(
            texts(app),
            ["a", "b", "c", "d", "e", "main"].map(|name| format!("  {name}"))
        );
        keys(app, "sss");
        assert_eq!(texts(app)[0], "  d", "by calls");
        // The chosen fields: without the first, with the second.
        keys(app, "f j \n");
        assert_eq!(
            screen(app, 60, 3)[0],
            "    2.000 us    3.000 us           2  d",
        );
        keys(app, "n");
        assert_eq!(
            app.message,
            "nothing is searched for: type / and a part of a name"
        );
        keys(app, "/a\nn");
        assert_eq!(app.message, "/a: match 2 of 2");
        // Enter leads to the graph of a function.
        keys(app, "\n");
        assert_eq!(app.page().0.title(), "graph of main");
    });
}

#[test]
fn the_graph_has_the_fields_that_are_chosen() {
    browse(&scripted("main( a )"), |app| {
        keys(app, "fj ");
        let lines = screen(app, 70, 6);
        assert!(
            lines[1].contains(" Space: choose") && lines[3].contains(" [x] self"),
            "{lines:#?}"
        );
        keys(app, "q");
        assert_eq!(
            screen(app, 70, 5)[..4],
            [
                "# TOTAL TIME   SELF TIME   FUNCTION",
                "    3.000 us             : (1) program",
                "    3.000 us    2.000 us : (1) main",
                "    1.000 us    1.000 us : (1) a",
            ]
        );
    });
}

#[test]
fn calls_are_read_as_far_as_one_goes() {
    browse(&scripted(&"main( a( b ) ) ".repeat(40)), |app| {
        keys(app, "t");
        let lines = screen(app, 60, 8);
        assert_eq!(
            lines[..6],
            [
                "# DURATION     TID     FUNCTION",
                "            [     7] | main() {",
                "            [     7] |   a() {",
                "   1.000 us [     7] |     b();",
                "   3.000 us [     7] |   } /* a */",
                "   5.000 us [     7] | } /* main */",
            ]
        );
        assert!(
            lines[7].starts_with("replay: line 1 of 7 and more"),
            "{}",
            lines[7]
        );
        keys(app, "jjj");
        assert_eq!(current(app), "} /* a */");
        press(app, &KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        assert!(screen(app, 60, 8)[7].starts_with("replay: line 200 of 200 "));
        keys(app, "/b(\n");
        assert_eq!(
            (current(app).as_str(), app.message.as_str()),
            ("b();", "/b(: match 1 of 40")
        );
        keys(app, "g");
        assert_eq!(app.page().0.title(), "graph of b");
    });
}

#[test]
fn so_many_lines_are_kept_at_most() {
    let made = scripted(&"main( a ) ".repeat(40));
    let trace = Trace::open(made.folder()).expect("a trace");
    let names = FunctionNames::new(&trace, SymbolOptions::default(), Demangle::Simple);
    let view = View::new(&names, ViewSelection::default()).expect("a view");
    let mut page = ReplayPage::new(&view, &names, Field::usual(None));
    page.limit(10);
    page.read(usize::MAX);
    assert_eq!(page.count(), 10);
    let expected = "line 1 of the first 10: -r, -F or --tid show the others";
    assert_eq!(page.position(), expected);
}

#[test]
fn losses_are_seen_and_told_in_full() {
    let mut steps = script("main( a ) main( a )", 1_000, 1_000);
    steps.insert(3, Step::Lost(5));
    browse(&trace(&[(7, steps)]), |app| {
        let lines = screen(app, 60, 10);
        assert_eq!(lines[8], "loss: 5 records are missing");
        keys(app, "R");
        assert_eq!(screen(app, 60, 10)[8], "loss: 5 records are missing");
        keys(app, "I");
        assert_eq!(texts(app)[0], "loss: 5 records are missing");
        assert!(texts(app).iter().any(|line| line.starts_with("# cmdline")));
        keys(app, "S");
        assert!(texts(app).iter().any(|line| line.ends_with("program")));
    });
}

#[test]
fn names_may_be_long_or_wide() {
    let long = "x".repeat(300);
    browse(
        &scripted(&format!("main( 名前( é\u{301}\u{1b}[7m ) {long} )")),
        |app| {
            assert_eq!(
                screen(app, 30, 6)[3],
                "    3.000 us :  +-(1) 名 前",
                "a wide character has two cells"
            );
            assert_eq!(
                screen(app, 60, 6)[4],
                "    1.000 us :  | (1) é\u{301}\\x1b[7m"
            );
            for columns in 0..40 {
                app.page().0.cursor().left = columns;
                for width in 0..40 {
                    screen(app, width, 7);
                }
            }
        },
    );
}

#[test]
fn q_closes_the_help_and_then_the_browser() {
    browse(&scripted("main( a )"), |app| {
        let before = screen(app, 40, 8);
        assert!(matches!(keys(app, "h"), ScreenAction::Draw));
        assert_ne!(screen(app, 40, 8), before);
        assert!(!matches!(keys(app, "q"), ScreenAction::Quit));
        assert_eq!(screen(app, 40, 8), before);
        assert!(matches!(keys(app, "q"), ScreenAction::Quit));
    });
}

#[test]
fn every_key_of_the_help_has_a_command() {
    for (keys, _) in HELP {
        for key in keys.split_whitespace() {
            let code = match key {
                "Up" => KeyCode::Up,
                "Down" => KeyCode::Down,
                "PageUp" => KeyCode::PageUp,
                "PageDown" => KeyCode::PageDown,
                "Home" => KeyCode::Home,
                "End" => KeyCode::End,
                "Left" => KeyCode::Left,
                "Right" => KeyCode::Right,
                "Enter" => KeyCode::Enter,
                key => KeyCode::Char(key.chars().next().expect("a key")),
            };
            let event = KeyEvent::new(code, KeyModifiers::NONE);
            assert!(command(&event).is_some(), "{key}");
        }
    }
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(command(&control), Some(Command::Interrupt));
}

/// For any keys and any size of the screen, the current line exists and is on the screen.
#[test]
fn any_keys_on_any_screen_leave_a_line() {
    let mut text = String::from("main(");
    for depth in 0..40 {
        text.push_str(&format!(" f{depth}( g h{}", depth % 3));
    }
    text.push_str(&" )".repeat(41));
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let letters: Vec<char> = "jkjkzcCeEnpulGgRrtISsf/h^\n\nNP<>qgx ".chars().collect();
    browse(&scripted(&text), |app| {
        for _ in 0..6_000 {
            let letter = letters[next(letters.len())];
            keys(app, &letter.to_string());
            if next(3) == 0 {
                let (width, height) = (next(90) as u16, next(30) as u16);
                let lines = screen(app, width, height);
                let (page, _) = app.page();
                let count = page.count();
                let cursor = *page.cursor();
                assert!(cursor.at < count.max(1), "{cursor:?} of {count}");
                if width == 0 || height == 0 {
                    continue;
                }
                assert!(cursor.top <= cursor.at, "{cursor:?}");
                let body = usize::from(height).max(1);
                assert!(cursor.at - cursor.top < body, "{lines:?}");
            }
        }
    });
}

#[test]
#[ignore = "not a test: what the next one runs in a terminal"]
fn a_browser_that_panics() {
    let _screen = Screen::new("other commands").expect("a terminal");
    panic!("on purpose");
}

#[test]
fn after_a_panic_the_terminal_is_as_it_was() {
    let name = "commands::trace::tui::tests::a_browser_that_panics";
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(program);
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    let mut session = session::Session::start(command, 24, 80);
    session.wait("the message on the main screen", |screen| {
        !screen.alternate_screen() && screen.contents().contains("on purpose")
    });
    assert_eq!(session.end().code(), Some(101));
}
