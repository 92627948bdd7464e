//! A program in a terminal, and the content of its screen.

use rustix::process::{Pid, ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time after which a program counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A program in a terminal of its own.
pub struct Session {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// The terminal's line, as the program has it.
    line: File,
    before: Termios,
    pub child: Child,
}

impl Session {
    /// Starts a program in a terminal of this size.
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Session {
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
        command
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
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

    /// Types keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("it takes keys");
    }

    /// Waits until the screen meets a condition.
    pub fn wait(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
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

    /// Waits until a text is on the screen.
    pub fn wait_for(&mut self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Makes the terminal larger or smaller.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        resize(&self.line, rows, columns);
    }

    /// Returns the lines on the screen between the heading and the footer.
    pub fn lines(&self) -> Vec<String> {
        let contents = self.screen.screen().contents();
        let lines: Vec<String> = contents
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        let body = lines.len() - 1;
        let filled = lines[..body].iter().filter(|line| !line.is_empty());
        filled.cloned().collect()
    }

    /// Returns true if the terminal echoes lines, as it did before.
    pub fn is_restored(&self) -> bool {
        let now = tcgetattr(&self.line).expect("its state");
        let modes = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let same = now.local_modes == self.before.local_modes
            && now.input_modes == self.before.input_modes
            && now.output_modes == self.before.output_modes;
        same && now.local_modes.contains(modes)
    }

    /// Returns the program's process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the program's end, and checks that the terminal is as it was.
    pub fn end(mut self) -> ExitStatus {
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
        // After a failure no process may stay; otherwise the program has ended already.
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
