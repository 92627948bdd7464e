//! The browser in a terminal.

use crate::made::{Made, script, scripted, trace};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What would take longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser in a terminal of its own.
struct Session {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// The terminal as the browser has it.
    line: File,
    before: Termios,
    child: Child,
}

impl Session {
    fn start(made: &Made, arguments: &str, rows: u16, columns: u16) -> Session {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("its other end");
        unlockpt(&master).expect("its other end");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let name = name.into_string().expect("a path");
        let open = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true);
            let flags = rustix::fs::OFlags::NOCTTY.bits() as i32;
            std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags)
                .open(&name)
                .expect("its other end")
        };
        let line = open();
        resize(&line, rows, columns);
        let before = tcgetattr(&line).expect("its state");
        let mut command = Command::new(crate::made::PROGRAM.expect("the program"));
        command
            .args(["trace", "tui", "-d"])
            .arg(made.folder())
            .args(arguments.split_whitespace())
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env("EDITOR", "printf 'edited %s %s' ")
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()));
        // SAFETY: between fork and exec only these two system calls are made.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                ioctl_tiocsctty(std::io::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().expect("it starts");
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().expect("another handle");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Session {
            keyboard,
            output,
            screen: vt100::Parser::new(rows, columns, 0),
            line,
            before,
            child,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("it takes keys");
    }

    /// Waits until the screen is as wanted.
    fn wait(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let start = Instant::now();
        while !is_so(self.screen.screen()) {
            let ended = self.child.try_wait().expect("a child").is_some();
            match self.output.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(_) if !ended && start.elapsed() < PATIENCE => {}
                Err(_) => panic!("{what}: {}", self.screen.screen().contents()),
            }
        }
    }

    fn wait_for(&mut self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// The lines on the screen between the heading and the footer.
    fn lines(&self) -> Vec<String> {
        let contents = self.screen.screen().contents();
        let lines: Vec<String> = contents
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        let body = lines.len() - 1;
        let filled = lines[..body].iter().filter(|line| !line.is_empty());
        filled.cloned().collect()
    }

    /// Whether the terminal echoes lines, as it did before.
    fn is_restored(&self) -> bool {
        let now = tcgetattr(&self.line).expect("its state");
        let modes = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let same = now.local_modes == self.before.local_modes
            && now.input_modes == self.before.input_modes
            && now.output_modes == self.before.output_modes;
        same && now.local_modes.contains(modes)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the browser's end, and sees that the terminal is as it was.
    fn end(mut self) -> ExitStatus {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => panic!("it goes on"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        self.wait("the main screen", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        assert!(self.is_restored());
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After a failure nothing shall stay; it has ended otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(line: &File, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(line, size).expect("a size");
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
    let mut session = Session::start(&made, "-f total,self", 40, 100);
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
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn it_takes_the_arguments_of_the_other_readers() {
    let made = made();
    let arguments = "--report -s self -f +size -F c -N e --tid 7";
    let mut session = Session::start(&made, arguments, 24, 80);
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
    let mut session = Session::start(&made, "", 24, 80);
    session.wait_for("q: quit");
    assert!(!session.is_restored());
    kill_process(session.pid(), Signal::TERM).expect("it is there");
    assert_eq!(session.end().signal(), Some(15));
}

#[test]
fn it_stops_and_goes_on() {
    let made = made();
    let mut session = Session::start(&made, "", 24, 80);
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
    let mut session = Session::start(&made, "", 24, 80);
    session.wait_for("q: quit");
    session.screen.screen_mut().set_size(6, 60);
    resize(&session.line, 6, 60);
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
