//! The program image of a command: the paths, arguments and variables with which it is executed.

use super::CommandError;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr;

/// Where commands are looked for when `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The shell that executes a script without `#!`.
const SHELL: &CStr = c"/bin/sh";

/// The arguments of `execve`, prepared before the fork, since the child of a program with threads
/// may not allocate.
pub(super) struct Image {
    /// Paths to try, in order.
    candidates: Vec<CString>,
    /// Null-terminated pointers to `_arguments`, after a free place in front that a script's shell takes.
    pointers: Vec<*const libc::c_char>,
    _arguments: Vec<CString>,
    /// Null-terminated pointers to `_variables`; empty: our own environment.
    environment: Vec<*const libc::c_char>,
    _variables: Vec<CString>,
}

impl Image {
    /// Prepares the image of `command`. The variables stand in its environment in place of ours of the same names.
    ///
    /// # Errors
    /// The command is empty, or a text holds a NUL.
    pub(super) fn new(
        command: &[OsString],
        variables: &[(OsString, OsString)],
    ) -> Result<Image, CommandError> {
        let c_string = |text: &OsStr| {
            CString::new(text.as_bytes()).map_err(|_| CommandError::Nul(text.to_owned()))
        };
        let program = command.first().ok_or(CommandError::Empty)?;
        let arguments: Vec<CString> = command
            .iter()
            .map(|word| c_string(word))
            .collect::<Result<_, _>>()?;
        let candidates = if program.as_bytes().contains(&b'/') || program.is_empty() {
            vec![c_string(program)?]
        } else {
            let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
            let in_folder = |folder: PathBuf| {
                // An empty entry means the working folder.
                let folder = if folder.as_os_str().is_empty() {
                    PathBuf::from(".")
                } else {
                    folder
                };
                CString::new(folder.join(program).into_os_string().into_vec()).ok()
            };
            std::env::split_paths(&path).filter_map(in_folder).collect()
        };
        let pointers = iter::once(SHELL.as_ptr())
            .chain(arguments.iter().map(|argument| argument.as_ptr()))
            .chain(iter::once(ptr::null()))
            .collect();
        let texts = environment(variables)?;
        let mut environment: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        if !environment.is_empty() {
            environment.push(ptr::null());
        }
        Ok(Image {
            candidates,
            pointers,
            _arguments: arguments,
            environment,
            _variables: texts,
        })
    }

    /// Executes the first candidate that can be, and returns the error if none can. Async-signal-safe.
    ///
    /// The rules are those of `execvp(3)`: a missing candidate gives way to the next, so does a forbidden one, but it
    /// is remembered; a text file without `#!` is a shell script.
    pub(super) fn execute(&mut self) -> i32 {
        let mut forbidden = None;
        for candidate in &self.candidates {
            let [_, arguments @ ..] = self.pointers.as_slice() else {
                return libc::EINVAL;
            };
            let mut errno = execve(candidate, arguments, &self.environment);
            if errno == libc::ENOEXEC && is_text(candidate) {
                // The shell stands in front, and the script's path takes the place of the command's name.
                if let Some(name) = self.pointers.get_mut(1) {
                    *name = candidate.as_ptr();
                }
                errno = execve(SHELL, &self.pointers, &self.environment);
            }
            match errno {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => forbidden = Some(errno),
                errno => return errno,
            }
        }
        forbidden.unwrap_or(libc::ENOENT)
    }
}

/// Returns whether a file is text, as far as its beginning tells: a shell must not read a program of another format.
/// Async-signal-safe.
fn is_text(path: &CStr) -> bool {
    let mut start = [0_u8; 256];
    // SAFETY: the path is null-terminated; `start` outlives the call that fills it; the descriptor is closed here only.
    let size = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            // The shell will tell why it can't be read.
            return true;
        }
        let size = libc::read(file, start.as_mut_ptr().cast(), start.len());
        libc::close(file);
        size
    };
    let size = usize::try_from(size).unwrap_or(0);
    !start.get(..size).is_some_and(|start| start.contains(&0))
}

/// Returns our environment with these variables in place of ours of the same names; empty if there are none, since
/// nothing is changed then.
fn environment(variables: &[(OsString, OsString)]) -> Result<Vec<CString>, CommandError> {
    if variables.is_empty() {
        return Ok(Vec::new());
    }
    let ours = std::env::vars_os().filter(|(name, _)| variables.iter().all(|(new, _)| new != name));
    ours.chain(variables.iter().cloned())
        .map(|(mut text, value)| {
            text.push("=");
            text.push(value);
            CString::new(text.as_bytes()).map_err(|_| CommandError::Nul(text))
        })
        .collect()
}

/// Returns the error number, if it returns. An empty environment means our own.
fn execve(
    path: &CStr,
    null_terminated_arguments: &[*const libc::c_char],
    null_terminated_environment: &[*const libc::c_char],
) -> i32 {
    // SAFETY: all are null-terminated and live until the call returns, which is only when nothing was executed.
    // `environ` is read by a process that has one thread (the child of a fork).
    unsafe {
        let variables = if null_terminated_environment.is_empty() {
            environ.cast()
        } else {
            null_terminated_environment.as_ptr()
        };
        libc::execve(path.as_ptr(), null_terminated_arguments.as_ptr(), variables);
        *libc::__errno_location()
    }
}

unsafe extern "C" {
    /// The environment (`environ(7)`), which `libc` does not declare.
    static environ: *const *const libc::c_char;
}
