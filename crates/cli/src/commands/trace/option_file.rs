//! `--opt-file FILE`: options from a file. The file may begin with the sub-command and end with the traced command.

use super::elsewhere::later_ones_hold;
use clap::{Arg, ArgMatches, Command};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

const ID: &str = "opt-file";
const COMMANDS: [&str; 9] = [
    "record", "live", "replay", "report", "graph", "dump", "info", "tui", "script",
];

/// Returns the option. Its value is replaced before arguments are parsed.
pub fn argument() -> Arg {
    Arg::new(ID)
        .long(ID)
        .value_name("FILE")
        .help("Take options from this file, as if they stood here first")
        .value_parser(clap::value_parser!(PathBuf))
}

/// The option for commands whose arguments are derived, behind all other options.
pub struct OptionFile;

impl clap::FromArgMatches for OptionFile {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(OptionFile)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl clap::Args for OptionFile {
    fn augment_args(command: Command) -> Command {
        later_ones_hold(command.arg(argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns the words of a command line, with the words of its `--opt-file` in its place. `command` makes the parser of
/// the command line.
///
/// The file's words come first, so that the command line's options win. The file's traced command counts if the command
/// line has none.
///
/// # Errors
/// The file cannot be read, or its quoting is wrong.
pub fn replaced(
    words: Vec<OsString>,
    command: impl FnOnce() -> Command,
) -> Result<Vec<OsString>, String> {
    let is_ours = words.get(1).is_some_and(|word| word == "trace");
    let may_have = |word: &OsString| word.as_encoded_bytes().starts_with(b"--opt");
    if !is_ours || !words.iter().skip(2).any(may_have) {
        return Ok(words);
    }
    let command = command();
    let matches = parsed(&command, &words);
    let Some(file) = innermost(&matches).and_then(|m| m.try_get_one::<PathBuf>(ID).ok().flatten())
    else {
        return Ok(words);
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("--opt-file {}: {error}", file.display()))?;
    let mut from_file = split(&text)
        .map_err(|what| format!("--opt-file {}: {what}", file.display()))?
        .into_iter()
        .map(OsString::from)
        .collect::<Vec<_>>();
    let (program, mut rest) = (words[..2].to_vec(), words[2..].to_vec());
    let is_command = |word: &OsString| COMMANDS.iter().any(|name| word == name);
    let named_here = rest.first().is_some_and(is_command).then(|| rest.remove(0));
    let named_there = from_file
        .first()
        .is_some_and(is_command)
        .then(|| from_file.remove(0));
    remove(&mut rest, file.as_os_str());
    let mut merged = program;
    merged.extend(named_here.or(named_there));
    let traced = |words: &[OsString]| {
        let mut all = merged.clone();
        all.extend_from_slice(words);
        let matches = parsed(&command, &all);
        let traced = innermost(&matches).and_then(|m| m.try_get_raw("command").ok().flatten());
        traced.map_or(0, Iterator::count)
    };
    let behind = match (traced(&from_file), traced(&rest)) {
        (there, 0) => from_file.split_off(from_file.len().saturating_sub(there)),
        (there, _) => {
            from_file.truncate(from_file.len().saturating_sub(there));
            Vec::new()
        }
    };
    merged.extend(from_file);
    merged.extend(rest);
    merged.extend(behind);
    Ok(merged)
}

/// Parses the words as far as they can be understood.
fn parsed(command: &Command, words: &[OsString]) -> Option<ArgMatches> {
    command
        .clone()
        .ignore_errors(true)
        .try_get_matches_from(words)
        .ok()
}

/// Returns the arguments of the command below `trace`, or of `trace` itself.
fn innermost(matches: &Option<ArgMatches>) -> Option<&ArgMatches> {
    let trace = matches.as_ref()?.subcommand_matches("trace")?;
    Some(trace.subcommand().map_or(trace, |(_, matches)| matches))
}

/// Removes the option from the words.
fn remove(words: &mut Vec<OsString>, file: &OsStr) {
    let at = words
        .iter()
        .position(|word| word.as_encoded_bytes().starts_with(b"--opt"));
    let Some(at) = at else { return };
    if !words[at].as_encoded_bytes().contains(&b'=') && words.get(at + 1).is_some_and(|w| w == file)
    {
        words.remove(at + 1);
    }
    words.remove(at);
}

/// Splits a text into words at blanks outside of quotes and backslashes. `#` at the beginning of a word starts a
/// comment.
pub fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = letters.next().ok_or("it ends in a backslash")?;
                word.get_or_insert_default().push(next);
            }
            (None, '#') if word.is_none() => {
                letters
                    .by_ref()
                    .take_while(|letter| *letter != '\n')
                    .for_each(drop);
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a {quote} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let words = |text: &str| split(text).expect("words");
        assert_eq!(words(" a  -b\nc "), ["a", "-b", "c"]);
        assert_eq!(
            words("-F 'a b' x\"y z\"\\ w ''"),
            ["-F", "a b", "xy z w", ""]
        );
        assert_eq!(words("-D 1 # what -F\n-N b#c"), ["-D", "1", "-N", "b#c"]);
        assert!(split("'a").is_err());
        assert!(split("a\\").is_err());
    }
}
