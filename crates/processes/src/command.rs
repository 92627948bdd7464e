//! A command that is started but held before its exec, so that events can be attached to it first.
//!
//! The child is forked, waits on a pipe, and execs when [`HeldCommand::release`] writes to it. A second pipe, closed
//! by the exec, brings back why the exec failed. The command keeps our standard input, output and error and stays in
//! our process group, so that the terminal treats it as if it had been started without us.

mod image;

use image::Image;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use thiserror::Error;

/// Why a command did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No file of that name.
    #[error("{}: command not found; check its spelling, or give its path", .0.display())]
    NotFound(PathBuf),
    /// The interpreter in the script's first line, or the program's dynamic linker, does not exist.
    #[error(
        "{}: the interpreter that its first line names, or its dynamic linker, does not exist; install it", .0.display()
    )]
    NoInterpreter(PathBuf),
    /// There is such a file, but it may not be, or cannot be, executed.
    #[error("{}: cannot be executed: {source}; check its permissions and its format", .program.display())]
    NotExecutable {
        /// The path of the program that could not be executed.
        program: PathBuf,
        /// The exec's error.
        source: io::Error,
    },
    /// An argument holds a NUL byte.
    #[error("argument {0:?} of the command holds a NUL byte, which no program can be given")]
    Nul(OsString),
    /// No command was given.
    #[error("no command was given")]
    Empty,
    /// The system refused a pipe, a process, or to wait for it.
    #[error("starting {}: {call} failed: {source}", .program.display())]
    System {
        /// The command.
        program: PathBuf,
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStatus {
    /// The command exited with this status.
    Exited(u8),
    /// This signal killed it.
    Signaled(i32),
}

impl CommandStatus {
    /// The status that a shell reports: 128 plus the signal's number for a killed command.
    pub fn exit_code(self) -> u8 {
        match self {
            CommandStatus::Exited(code) => code,
            CommandStatus::Signaled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    fn from_wait(status: i32) -> CommandStatus {
        if libc::WIFSIGNALED(status) {
            CommandStatus::Signaled(libc::WTERMSIG(status))
        } else {
            // The kernel keeps eight bits of a status.
            CommandStatus::Exited(libc::WEXITSTATUS(status) as u8)
        }
    }
}

/// The standard input, output and error of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Ours.
    #[default]
    Ours,
    /// Ours, but the command's output goes to our standard error: our output is something else.
    OutputToError,
    /// None: the command reads nothing, and its output and errors are lost. For whoever draws on the terminal meanwhile.
    Nothing,
}

/// A forked child that has not executed its command yet. Dropping it ends the child.
#[derive(Debug)]
pub struct HeldCommand {
    program: PathBuf,
    pid: libc::pid_t,
    go: Option<PipeWriter>,
    failure: Option<PipeReader>,
    status: Option<CommandStatus>,
    usage: Option<libc::rusage>,
}

impl HeldCommand {
    /// Forks a child that will execute `command` (its program and arguments) when it is released.
    ///
    /// The program is searched in `PATH` unless it holds a slash. `mask` is the signal mask that the command gets;
    /// signals that we ignore or block (see [`crate::signals`]) are back at their defaults there.
    ///
    /// `streams` says where the command reads and writes.
    ///
    /// # Errors
    /// [`CommandError`], but not that the program is missing: only the exec tells.
    pub fn hold(
        command: &[OsString],
        mask: &libc::sigset_t,
        streams: Streams,
    ) -> Result<HeldCommand, CommandError> {
        HeldCommand::hold_with(command, &[], mask, streams)
    }

    /// The same with variables that are set in the command's environment, in place of ours of the same names.
    ///
    /// # Errors
    /// As [`HeldCommand::hold`].
    pub fn hold_with(
        command: &[OsString],
        variables: &[(OsString, OsString)],
        mask: &libc::sigset_t,
        streams: Streams,
    ) -> Result<HeldCommand, CommandError> {
        let program = PathBuf::from(command.first().ok_or(CommandError::Empty)?);
        let system = |call| {
            let program = program.clone();
            move |source| CommandError::System {
                program,
                call,
                source,
            }
        };
        let image = Image::new(command, variables)?;
        // Both are closed by exec.
        let (go_read, go_write) = io::pipe().map_err(system("pipe2"))?;
        let (failure_read, failure_write) = io::pipe().map_err(system("pipe2"))?;
        let nothing = match streams {
            Streams::Nothing => {
                let file = File::options().read(true).write(true).open("/dev/null");
                Some(file.map_err(system("open"))?)
            }
            Streams::Ours | Streams::OutputToError => None,
        };
        let child = Child {
            image,
            mask,
            go: go_read.as_raw_fd(),
            go_write: go_write.as_raw_fd(),
            failure: failure_write.as_raw_fd(),
            to_stdout: match streams {
                Streams::Ours => None,
                Streams::OutputToError => Some(libc::STDERR_FILENO),
                Streams::Nothing => nothing.as_ref().map(AsRawFd::as_raw_fd),
            },
            nothing: nothing.as_ref().map(AsRawFd::as_raw_fd),
        };
        // SAFETY: the child calls only async-signal-safe functions, on memory prepared before the fork, and ends in
        // exec or _exit.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(system("fork")(io::Error::last_os_error())),
            0 => child.run(),
            pid => Ok(HeldCommand {
                program,
                pid,
                go: Some(go_write),
                failure: Some(failure_read),
                status: None,
                usage: None,
            }),
        }
    }

    /// The child's process id, which the exec keeps.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Returns the program's name or path as it was given.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Whether it was let go, and so may have executed its command.
    pub fn is_released(&self) -> bool {
        self.go.is_none()
    }

    /// Lets the child execute its command, and returns once it has.
    ///
    /// # Errors
    /// [`CommandError::NotFound`] and [`CommandError::NotExecutable`] if the exec failed; the child is gone then.
    /// Releasing a second time does nothing.
    pub fn release(&mut self) -> Result<(), CommandError> {
        let (Some(mut go), Some(mut failure)) = (self.go.take(), self.failure.take()) else {
            return Ok(());
        };
        // A child that died meanwhile is noticed below and by `wait`; its broken pipe tells nothing more.
        let _ = go.write_all(&[1]);
        drop(go);
        let mut errno = [0; 4];
        match failure.read_exact(&mut errno) {
            // Closed without a word: by the exec, or by a signal's killing the child, which `wait` will tell.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(source) => Err(self.system("read", source)),
            Ok(()) => {
                let _ = self.wait();
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                let program = self.program.clone();
                Err(match source.raw_os_error() {
                    Some(libc::ENOENT) if has_slash(&program) && program.exists() => {
                        CommandError::NoInterpreter(program)
                    }
                    Some(libc::ENOENT | libc::ENOTDIR) => CommandError::NotFound(program),
                    _ => CommandError::NotExecutable { program, source },
                })
            }
        }
    }

    /// Returns the command's end, or `None` while it runs. Does not block.
    ///
    /// # Errors
    /// [`CommandError::System`] if the child can't be waited for.
    pub fn try_wait(&mut self) -> Result<Option<CommandStatus>, CommandError> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits for the command to end.
    ///
    /// # Errors
    /// [`CommandError::System`] if the child can't be waited for.
    pub fn wait(&mut self) -> Result<CommandStatus, CommandError> {
        loop {
            if let Some(status) = self.wait_with(0)? {
                return Ok(status);
            }
        }
    }

    fn wait_with(&mut self, options: i32) -> Result<Option<CommandStatus>, CommandError> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        let mut status = 0;
        // SAFETY: numbers, for which zero is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `status` and `usage` outlive the call; the pid is our unreaped child's.
        match unsafe { libc::wait4(self.pid, &mut status, options, &mut usage) } {
            0 => Ok(None),
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(self.system("wait4", error)),
            },
            // A stop is no end: the tracer stops threads of its program for a moment, and this call sees the stop, too.
            _ if libc::WIFSTOPPED(status) => Ok(None),
            _ => {
                self.status = Some(CommandStatus::from_wait(status));
                self.usage = Some(usage);
                Ok(self.status)
            }
        }
    }

    /// Returns what the command and the children that it waited for used, once the command has ended.
    #[must_use]
    pub fn usage(&self) -> Option<&libc::rusage> {
        self.usage.as_ref()
    }

    /// Sends `signal` to the command, unless it has ended.
    pub fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: no memory is involved; the pid is our unreaped child's, so it is not another process's.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    fn system(&self, call: &'static str, source: io::Error) -> CommandError {
        CommandError::System {
            program: self.program.clone(),
            call,
            source,
        }
    }
}

impl Drop for HeldCommand {
    fn drop(&mut self) {
        // A child still held sees its pipe closed and exits; a released one is not ours to end.
        if self.go.take().is_some() {
            let _ = self.wait();
        }
    }
}

/// Whether it is a path, not a name to be looked for.
fn has_slash(program: &Path) -> bool {
    program.as_os_str().as_bytes().contains(&b'/')
}

/// The child's side.
struct Child<'a> {
    image: Image,
    mask: &'a libc::sigset_t,
    go: RawFd,
    go_write: RawFd,
    failure: RawFd,
    /// The descriptor that becomes its standard output.
    to_stdout: Option<RawFd>,
    /// The descriptor that becomes its standard input and error.
    nothing: Option<RawFd>,
}

impl Child<'_> {
    /// Waits for the word to go, and executes. Async-signal-safe.
    fn run(mut self) -> ! {
        // SAFETY: all pointers are to live locals or to prepared memory; the descriptors are this process's own
        // copies; _exit does not return and runs no destructors.
        unsafe {
            // Or the parent's death would not close the pipe.
            libc::close(self.go_write);
            if let Some(to) = self.to_stdout {
                libc::dup2(to, libc::STDOUT_FILENO);
            }
            if let Some(nothing) = self.nothing {
                libc::dup2(nothing, libc::STDIN_FILENO);
                libc::dup2(nothing, libc::STDERR_FILENO);
            }
            let mut word = 0_u8;
            let got = loop {
                let got = libc::read(self.go, ptr::from_mut(&mut word).cast(), 1);
                if got >= 0 || *libc::__errno_location() != libc::EINTR {
                    break got;
                }
            };
            if got != 1 {
                libc::_exit(127);
            }
            // Rust ignores SIGPIPE, we SIGXFSZ, shells the others for background jobs, and an ignored signal stays so after exec.
            // But what asks us for the end of a recording has to end the command as well.
            for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT, libc::SIGXFSZ] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::sigprocmask(libc::SIG_SETMASK, self.mask, ptr::null_mut());
            let errno = self.image.execute().to_ne_bytes();
            libc::write(self.failure, errno.as_ptr().cast(), errno.len());
            libc::_exit(127)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn no_signals() -> libc::sigset_t {
        // SAFETY: the set is initialised by sigemptyset before it is read.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            set
        }
    }

    fn hold(words: &[&str]) -> Result<HeldCommand, CommandError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        HeldCommand::hold(&words, &no_signals(), Streams::Ours)
    }

    fn run(words: &[&str]) -> Result<CommandStatus, CommandError> {
        let mut command = hold(words)?;
        command.release()?;
        command.wait()
    }

    #[test]
    fn statuses_are_passed_on() {
        assert_eq!(
            run(&["sh", "-c", "exit 7"]).unwrap(),
            CommandStatus::Exited(7)
        );
        let killed = run(&["/bin/sh", "-c", "kill -TERM $$"]).unwrap();
        assert_eq!(
            (killed, killed.exit_code()),
            (CommandStatus::Signaled(15), 143)
        );
    }

    #[test]
    fn signals_have_their_default_effect_in_the_command() {
        // A shell could not undo that a signal was ignored when it started.
        for signal in [libc::SIGPIPE, libc::SIGINT] {
            let kill = format!("kill -{signal} $$");
            assert_eq!(
                run(&["sh", "-c", &kill]).unwrap(),
                CommandStatus::Signaled(signal)
            );
        }
    }

    #[test]
    fn it_does_not_run_before_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let witness = folder.path().join("ran");
        let words = ["touch", witness.to_str().unwrap()];
        let held = hold(&words).unwrap();
        assert!(
            std::fs::read_link(format!("/proc/{}/exe", held.pid())).unwrap()
                != Path::new("/bin/touch")
        );
        drop(held);
        assert!(!witness.exists());
        run(&words).unwrap();
        assert!(witness.exists());
    }

    #[test]
    fn a_missing_command_is_told_from_a_forbidden_one() {
        for missing in ["no-such-command-anywhere", "/no/such/file", ""] {
            let error = run(&[missing]).unwrap_err();
            assert!(matches!(error, CommandError::NotFound(_)), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "hello").unwrap();
        std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
        for forbidden in [&*plain, folder.path()] {
            let error = run(&[forbidden.to_str().unwrap()]).unwrap_err();
            assert!(
                matches!(error, CommandError::NotExecutable { .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn a_missing_interpreter_is_told_from_a_missing_command() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let error = run(&[script.to_str().unwrap()]).unwrap_err();
        assert!(matches!(error, CommandError::NoInterpreter(_)), "{error}");
    }

    #[test]
    fn a_script_without_interpreter_goes_to_the_shell() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "test \"$1\" = two && exit 9\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let status = run(&[script.to_str().unwrap(), "two"]);
        assert_eq!(status.unwrap(), CommandStatus::Exited(9));
    }

    #[test]
    fn a_command_killed_while_held_is_not_an_exec_failure() {
        let mut held = hold(&["true"]).unwrap();
        held.signal(libc::SIGKILL);
        // Its end of the pipe closes either before or after our word.
        held.release().unwrap();
        assert_eq!(held.wait().unwrap(), CommandStatus::Signaled(libc::SIGKILL));
    }

    #[test]
    fn nul_bytes_and_nothing_are_refused() {
        assert!(matches!(hold(&["true", "a\0b"]), Err(CommandError::Nul(_))));
        assert!(matches!(hold(&[]), Err(CommandError::Empty)));
    }
}
