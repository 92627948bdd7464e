//! Tests of the examples in `--help`: every sub-command has some, and their arguments are accepted.

use crate::Arguments;
use clap::{Command, CommandFactory};

/// Returns the words of a command line, up to the first pipe or redirection. A comment begins after two blanks.
fn words(example: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut blanks = 0;
    for character in example.chars() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, open @ ('\'' | '"')) => quote = Some(open),
            (None, ' ') => {
                blanks += 1;
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if blanks == 2 {
                    return words;
                }
                continue;
            }
            (None, '|' | '>' | '<' | '&' | ';') => break,
            (_, other) => word.push(other),
        }
        blanks = 0;
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Returns the lines below `Examples:`.
fn examples(help: &str) -> Vec<&str> {
    let (_, behind) = help.split_once("Examples:\n").unwrap_or_default();
    let lines = behind
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("  "));
    let lines = lines.map(str::trim_start);
    lines.filter(|line| line.starts_with("dioptra ")).collect()
}

/// Checks a sub-command and those below it, and counts their examples.
fn check(command: &Command, path: &str, seen: &mut Vec<String>) {
    let help = command.clone().render_long_help().to_string();
    let examples = examples(&help);
    assert!(
        !examples.is_empty(),
        "{path} --help has no examples:\n{help}"
    );
    for example in examples {
        // The part behind `&&` is another example.
        for part in example.split(" && ") {
            let words = words(part);
            if words.first().is_none_or(|word| word != "dioptra") {
                continue;
            }
            let result = Arguments::command().try_get_matches_from(&words);
            let error = result.err().map(|error| error.to_string());
            assert!(error.is_none(), "{path}: {part}: {words:?}: {error:?}");
        }
        assert!(
            example.contains(path) || path.starts_with("dioptra trace"),
            "{path} --help is about another command: {example}"
        );
    }
    seen.push(path.to_owned());
    let commands = command.get_subcommands();
    for command in commands.filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        check(command, &format!("{path} {}", command.get_name()), seen);
    }
}

#[test]
fn every_command_has_examples_that_are_accepted() {
    let mut command = Arguments::command();
    // Arguments of sub-commands are only defined when the command is built.
    command.build();
    let mut seen = Vec::new();
    check(&command, "dioptra", &mut seen);
    for path in [
        "dioptra report",
        "dioptra info",
        "dioptra trace record",
        "dioptra list events",
    ] {
        assert!(seen.iter().any(|known| known == path), "{seen:?}");
    }
}

#[test]
fn words_are_those_of_a_shell() {
    let example = "dioptra report -e '{a,b}:S' --format json | jq .rows";
    assert_eq!(
        words(example),
        ["dioptra", "report", "-e", "{a,b}:S", "--format", "json"]
    );
    assert_eq!(words("dioptra info  what it holds"), ["dioptra", "info"]);
}
