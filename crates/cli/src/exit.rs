//! The exit status: the one place that knows its numbers.

use dioptra_processes::command::{CommandError, CommandStatus};
use dioptra_recorder::{Ending, Outcome, RecordError};
use dioptra_trace_recorder::TraceError;
use std::process::ExitCode;

/// The result of a sub-command, as its exit status says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The work is done: 0.
    Done,
    /// An analysis failed, or a check found something: 1.
    Failed,
    /// The arguments are wrong: 2.
    WrongArguments,
    /// A recording failed on our side, not in its command: 125.
    RecordingFailed,
    /// The command of a recording is no program that can be executed: 126.
    NotExecutable,
    /// The command of a recording was not found: 127.
    NotFound,
    /// The command of a recording ended with this status, as a shell reports it.
    Command(u8),
}

impl Exit {
    fn status(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::WrongArguments => 2,
            Exit::RecordingFailed => 125,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Command(status) => status,
        }
    }

    /// Returns the exit of a recording. A command that only died because we ended it at the recording's end is no failure.
    pub fn of_recording(outcome: &Outcome) -> Exit {
        match (outcome.command, outcome.ending) {
            (None, _) | (Some(CommandStatus::Signaled(libc::SIGTERM)), Ending::Duration) => {
                Exit::Done
            }
            (Some(status), _) => status.into(),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.status())
    }
}

impl From<CommandStatus> for Exit {
    fn from(status: CommandStatus) -> Exit {
        Exit::Command(status.exit_code())
    }
}

impl From<&CommandError> for Exit {
    fn from(error: &CommandError) -> Exit {
        match error {
            CommandError::NotFound(_) | CommandError::NoInterpreter(_) => Exit::NotFound,
            CommandError::NotExecutable { .. } => Exit::NotExecutable,
            _ => Exit::RecordingFailed,
        }
    }
}

impl From<&RecordError> for Exit {
    fn from(error: &RecordError) -> Exit {
        match error {
            RecordError::Command(error) => error.into(),
            _ => Exit::RecordingFailed,
        }
    }
}

impl From<&TraceError> for Exit {
    fn from(error: &TraceError) -> Exit {
        match error {
            TraceError::Command(error) => error.into(),
            TraceError::Unstarted { status, .. } => (*status).into(),
            _ => Exit::RecordingFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_status_is_passed_on_unless_we_ended_it() {
        let exit = |command, ending| {
            let mut outcome = Outcome::new("perf.data", 0, Vec::new());
            (outcome.command, outcome.ending) = (command, ending);
            Exit::of_recording(&outcome).status()
        };
        let (three, terminated) = (
            Some(CommandStatus::Exited(3)),
            Some(CommandStatus::Signaled(libc::SIGTERM)),
        );
        assert_eq!(exit(None, Ending::Signal(libc::SIGINT)), 0);
        assert_eq!(exit(three, Ending::CommandEnded), 3);
        assert_eq!(exit(terminated, Ending::CommandEnded), 143);
        assert_eq!(exit(terminated, Ending::Duration), 0);
        assert_eq!(exit(three, Ending::Duration), 3);
    }
}
