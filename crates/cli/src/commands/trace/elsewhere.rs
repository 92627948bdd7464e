//! Options that only another of uftrace's commands has. uftrace takes every option with every command, so its users'
//! scripts do the same.

use super::usage;
use crate::output::say;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;

/// The effect of an option that a command does not have itself.
#[derive(Clone, Copy)]
enum OptionEffect {
    /// An option about recording. The text is the reason why even recording commands ignore it, or empty.
    Recording(&'static str),
    /// An option of the named command only.
    Of(&'static str),
    /// An option that does nothing anywhere, for this reason.
    Nothing(&'static str),
    /// An option that changes nothing and needs no message.
    Silent,
}

use OptionEffect::{Nothing, Of, Recording, Silent};

/// An option that recording commands have.
const THERE: OptionEffect = Recording("");

const NO_DEBUGGING: &str = "there are no debugging messages";
const NO_KERNEL: &str = "calls of the kernel are not recorded";

/// Long name, letter, whether it takes a value, and its effect.
#[rustfmt::skip]
const OPTIONS: [(&str, Option<char>, bool, OptionEffect); 92] = [
    ("agent", Some('g'), false, THERE),
    ("argument", Some('A'), true, THERE),
    ("auto-args", Some('a'), false, THERE),
    ("buffer", Some('b'), true, Recording("--memory says how much memory records may take")),
    ("clock", None, true, THERE),
    ("data", Some('d'), true, Recording("live keeps nothing; use `dioptra trace record`")),
    ("estimate-return", Some('e'), false, Recording("calls end when they return")),
    ("Event", Some('E'), true, THERE),
    ("force", None, false, THERE),
    ("host", None, true, THERE),
    ("keep-pid", None, false, Recording("the command has a process of its own")),
    ("kernel", Some('k'), false, THERE),
    ("kernel-buffer", None, true, Recording(NO_KERNEL)),
    ("kernel-depth", Some('K'), true, THERE),
    ("libmcount-path", None, true, Recording("what is loaded into programs is a part of dioptra")),
    ("libmcount-single", None, false, Recording("there is one runtime for all programs")),
    ("library-path", None, true, Recording("what is loaded into programs is a part of dioptra")),
    ("list-event", None, false, THERE),
    ("max-stack", None, true, Recording("calls are recorded at any depth")),
    ("nest-libcall", Some('l'), false, THERE),
    ("no-pltbind", None, false, Recording("library calls are recorded however they are bound")),
    ("no-randomize-addr", None, false, Recording("functions are known by their places in files")),
    ("nop", None, false, THERE),
    ("num-thread", None, true, Recording("writing needs one thread")),
    ("patch", Some('P'), true, THERE),
    ("pid", Some('p'), true, THERE),
    ("port", None, true, THERE),
    ("record", None, false, THERE),
    ("retval", Some('R'), true, THERE),
    ("rt-prio", None, true, Recording("programs wait for the recorder if it is late, see --on-full")),
    ("run-cmd", None, true, Recording("nothing is received")),
    ("script", Some('S'), true, THERE),
    ("signal", None, true, THERE),
    ("time", None, false, Recording("`dioptra trace info` shows the time that the command took")),
    ("unpatch", Some('U'), true, THERE),
    ("watch", Some('W'), true, THERE),
    ("column-offset", None, true, Of("replay")),
    ("column-view", None, false, Of("replay")),
    ("flat", None, false, Of("replay")),
    ("libname", None, false, Of("replay")),
    ("no-comment", None, false, Of("replay")),
    ("no-merge", None, false, Of("replay")),
    ("task-newline", None, false, Of("replay")),
    ("avg-self", None, false, Of("report")),
    ("avg-total", None, false, Of("report")),
    ("diff", None, true, Of("report")),
    ("diff-policy", None, true, Of("report")),
    ("sort", Some('s'), true, Of("report")),
    ("sort-column", None, true, Of("report")),
    ("output-fields", Some('f'), true, Of("replay, report and graph")),
    ("srcline", None, false, Of("replay, report and graph")),
    ("chrome", None, false, Of("dump")),
    ("flame-graph", None, false, Of("dump")),
    ("graphviz", None, false, Of("dump")),
    ("mermaid", None, false, Of("dump")),
    ("sample-time", None, true, Of("dump")),
    ("report", None, false, Of("live")),
    ("symbols", None, false, Of("info")),
    ("task", None, false, Of("report, graph and info")),
    ("filter", Some('F'), true, Of("replay, report, graph and dump")),
    ("notrace", Some('N'), true, Of("replay, report, graph and dump")),
    ("caller-filter", Some('C'), true, Of("replay, report, graph and dump")),
    ("hide", Some('H'), true, Of("replay, report, graph and dump")),
    ("trigger", Some('T'), true, Of("replay, report, graph and dump")),
    ("depth", Some('D'), true, Of("replay, report, graph and dump")),
    ("time-filter", Some('t'), true, Of("replay, report, graph and dump")),
    ("size-filter", Some('Z'), true, Of("replay, report, graph and dump")),
    ("loc-filter", Some('L'), true, Of("replay, report, graph and dump")),
    ("match", None, true, Of("replay, report, graph and dump")),
    ("tid", None, true, Of("replay, report, graph and dump")),
    ("time-range", Some('r'), true, Of("replay, report, graph and dump")),
    ("trace", None, true, Of("replay, report, graph and dump")),
    ("disable", None, false, Of("replay, report, graph and dump")),
    ("demangle", None, true, Of("replay, report, graph, dump and info")),
    ("event-full", None, false, Of("replay, report, graph and dump")),
    ("no-libcall", None, false, Of("replay, report, graph and dump")),
    ("no-sched-preempt", None, false, Of("replay, report, graph and dump")),
    ("format", None, true, Of("replay, report, graph and dump")),
    ("system", None, false, Of("info")),
    ("kernel-only", None, false, Nothing(NO_KERNEL)),
    ("with-syms", None, true, Nothing("names are read from the programs' own files and their debug files")),
    ("debug-domain", None, true, Nothing(NO_DEBUGGING)),
    ("debug", None, false, Nothing(NO_DEBUGGING)),
    ("verbose", Some('v'), false, Nothing(NO_DEBUGGING)),
    // Options that leave out or colour things which are not there.
    ("color", None, true, Silent),
    ("kernel-full", None, false, Silent),
    ("kernel-skip-out", None, false, Silent),
    ("no-args", None, false, Silent),
    ("no-callsite", None, false, Silent),
    ("no-event", None, false, Silent),
    ("no-pager", None, false, Silent),
    ("no-sched", None, false, Silent),
];

/// The id of ignored words: the program's name and arguments, which uftrace's users give to every command.
const PROGRAM: &str = "traced program";

/// A command's own arguments, with uftrace's other options.
pub struct Options<A> {
    /// The command's own arguments.
    pub arguments: A,
    /// The given options that the command does not have, with their effects.
    others: Vec<(&'static str, OptionEffect)>,
    /// The file that gets messages in place of standard error.
    logfile: Option<PathBuf>,
}

impl<A> Options<A> {
    /// Names the given options that do nothing in a command that reads a trace, and redirects messages to the log file.
    ///
    /// # Errors
    /// The log file cannot be written.
    pub fn begin(self) -> anyhow::Result<A> {
        self.tell(false)
    }

    /// Does the same as [`Options::begin`], in a command that records a trace.
    ///
    /// # Errors
    /// The log file cannot be written.
    pub fn begin_recording(self) -> anyhow::Result<A> {
        self.tell(true)
    }

    fn tell(self, records: bool) -> anyhow::Result<A> {
        if let Some(path) = &self.logfile
            && records
        {
            // The traced command shares this standard error.
            let path = path.display();
            say!("--logfile {path} does nothing while a command runs");
        } else if let Some(path) = &self.logfile {
            log_to(path)
                .map_err(|error| usage(format_args!("--logfile {}: {error}", path.display())))?;
        }
        for (name, fate) in &self.others {
            match fate {
                Recording(why) if records => say!("--{name} does nothing: {why}"),
                Recording(_) => {
                    say!("--{name} does nothing here: it is about recording")
                }
                Of(command) => {
                    say!("--{name} does nothing here: it is an option of {command}")
                }
                Nothing(why) => say!("--{name} does nothing: {why}"),
                Silent => {}
            }
        }
        Ok(self.arguments)
    }
}

/// Empties a file and makes it our standard error.
fn log_to(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::create(path)?;
    // SAFETY: both are open descriptors; the call closes the old standard error.
    match unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl<A: Args> FromArgMatches for Options<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |id: &str| {
            matches!(matches.try_contains_id(id), Ok(true))
                && matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
        };
        let own = A::augment_args(Command::new("own"));
        let others = OPTIONS
            .iter()
            .filter(|(name, ..)| !has_long(&own, name) && given(name));
        Ok(Options {
            arguments: A::from_arg_matches(matches)?,
            others: others.map(|(name, .., fate)| (*name, *fate)).collect(),
            logfile: matches.get_one::<PathBuf>("logfile").cloned(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: Args> Args for Options<A> {
    fn augment_args(command: Command) -> Command {
        let mut command = A::augment_args(command)
            .version(env!("CARGO_PKG_VERSION"))
            .arg(
                Arg::new("logfile")
                    .long("logfile")
                    .value_name("FILE")
                    .help("Write messages to this file in place of standard error")
                    .value_parser(clap::value_parser!(PathBuf)),
            )
            .arg(
                Arg::new("usage")
                    .long("usage")
                    .hide(true)
                    .action(ArgAction::HelpShort),
            );
        if !has_long(&command, "opt-file") {
            command = command.arg(super::option_file::argument());
        }
        let is_short = |command: &Command, letter: char| {
            command.get_arguments().any(|argument| {
                argument.get_short() == Some(letter)
                    || argument
                        .get_all_short_aliases()
                        .is_some_and(|all| all.contains(&letter))
            })
        };
        for (name, letter, has_value, _) in OPTIONS {
            if has_long(&command, name) {
                continue;
            }
            let letter = letter.filter(|letter| !is_short(&command, *letter));
            let argument = Arg::new(name).long(name).short(letter).hide(true);
            command = command.arg(match has_value {
                true => argument.action(ArgAction::Append).allow_hyphen_values(true),
                false => argument.action(ArgAction::Count),
            });
        }
        if command.get_positionals().next().is_none() {
            // uftrace's users give the program's name to every command.
            let words = Arg::new(PROGRAM)
                .num_args(0..)
                .trailing_var_arg(true)
                .hide(true)
                .value_parser(clap::value_parser!(std::ffi::OsString));
            command = command.arg(words);
        }
        later_ones_hold(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn has_long(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|argument| {
        let aliases = argument.get_all_aliases();
        argument.get_long() == Some(name) || aliases.is_some_and(|all| all.contains(&name))
    })
}

/// Makes the later one hold if an option is given twice.
pub fn later_ones_hold(command: Command) -> Command {
    command.mut_args(|argument| match argument.get_action() {
        ArgAction::Set | ArgAction::SetTrue | ArgAction::SetFalse if !argument.is_positional() => {
            let id = argument.get_id().clone();
            argument.overrides_with(id)
        }
        _ => argument,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_uftrace_is_taken() {
        let command = Options::<super::super::info::Arguments>::augment_args(Command::new("info"));
        command.clone().debug_assert();
        for (name, _, has_value, _) in OPTIONS {
            let mut words = vec!["info".to_owned(), format!("--{name}")];
            // The command checks `--demangle`, so the test's value is one that `--demangle` takes, too.
            words.extend(has_value.then(|| "full".to_owned()));
            let taken = command.clone().try_get_matches_from(&words);
            assert!(taken.is_ok(), "{words:?}");
        }
    }

    /// Returns the options in the first column of the tables of `docs/uftrace.md`, except options that it calls
    /// refused.
    fn documented() -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/uftrace.md");
        let text = std::fs::read_to_string(path).unwrap();
        let mut options = Vec::new();
        for row in text.lines().filter(|line| line.starts_with("| `")) {
            let columns: Vec<&str> = row.split('|').collect();
            let says = |word: &str| columns[3].contains(word) || columns[2].contains(word);
            if says("are refused") || says("not recorded") {
                continue;
            }
            let words = columns[1].split(['`', ' ', ';', ',', '=']);
            let is_option = |word: &&str| {
                let name = word.trim_start_matches('-');
                let is_name = |c: char| c.is_ascii_alphabetic() || c == '-';
                word.starts_with("--") && name.len() > 1 && name.chars().all(is_name)
                    || word.starts_with('-') && !word.starts_with("--") && name.len() == 1
            };
            options.extend(words.filter(is_option).map(str::to_owned));
        }
        options
    }

    fn of<A: Args>(name: &'static str) -> Command {
        Options::<A>::augment_args(Command::new(name).version("1"))
    }

    #[test]
    fn every_command_takes_every_documented_option() {
        use super::super::{dump, graph, info, live, record, replay, report, tui};
        let commands = [
            of::<record::Arguments>("record"),
            of::<live::Live>("live"),
            of::<replay::Arguments>("replay"),
            of::<report::Arguments>("report"),
            of::<graph::Arguments>("graph"),
            of::<dump::Arguments>("dump"),
            of::<info::Arguments>("info"),
            of::<tui::Arguments>("tui"),
        ];
        let documented = documented();
        assert!(documented.len() > 40, "{documented:?}");
        let value = |command: &str, option: &str| match option {
            "-D" | "--depth" | "--dep" | "--tid" | "--column-offset" | "--max-stack" => "2",
            "-t" | "--sample-time" => "1us",
            "-Z" => "4",
            "-r" => "1us~2us",
            "-T" => "f@trace",
            "-E" => "linux:schedule",
            "--match" => "glob",
            "--demangle" => "full",
            "--trace" | "--color" => "off",
            "-f" => match command {
                "report" | "graph" | "tui" => "total",
                _ => "duration",
            },
            "-s" => "total",
            "--format" if command == "dump" => "raw",
            "--format" => "html",
            _ => "x",
        };
        for command in commands {
            let name = command.get_name().to_owned();
            for option in &documented {
                let word = option.trim_start_matches('-');
                let by = |fits: &dyn Fn(&str) -> bool| {
                    let mut all = command.get_arguments();
                    all.find(|argument| argument.get_long().is_some_and(fits))
                };
                let known = match option.starts_with("--") {
                    true => by(&|long| long == word).or_else(|| by(&|long| long.starts_with(word))),
                    false => command
                        .get_arguments()
                        .find(|argument| argument.get_short() == word.chars().next()),
                };
                let takes_value = known.is_none_or(|argument| argument.get_action().takes_values());
                let mut words = vec![name.as_str(), option];
                words.extend(takes_value.then(|| value(&name, option)));
                words.extend(matches!(name.as_str(), "record" | "live").then_some("a.out"));
                let taken = command
                    .clone()
                    .infer_long_args(true)
                    .try_get_matches_from(&words);
                if let Err(error) = taken {
                    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
                    let kind = error.kind();
                    assert!(
                        matches!(kind, DisplayHelp | DisplayVersion),
                        "{words:?}: {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn recording_commands_have_reasons_for_what_they_ignore() {
        let command = super::super::record::Arguments::augment_args(Command::new("record"));
        for (name, .., fate) in OPTIONS {
            if let Recording(why) = fate {
                assert!(has_long(&command, name) || !why.is_empty(), "{name}");
            }
        }
        let command = Command::new("record");
        let command = Options::<super::super::record::Arguments>::augment_args(command);
        command.debug_assert();
    }
}
