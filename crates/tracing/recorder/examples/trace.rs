//! Traces a command: `cargo run --example trace -- [-P] [-d DIR] [-F|-N|-D|-t|-T RULE] [--no-libcall] [--drop] [--last SECONDS]
//! COMMAND…`.

use dioptra_filters::{MatchStyle, RuleOption};
use dioptra_trace_recorder::{
    Choice, Everything, LibraryCalls, OnFull, PatchPatterns, RuleSelector, TraceSpec, record,
};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let mut spec = TraceSpec::new(
        Vec::new(),
        PathBuf::from(dioptra_tracelayout::directory::DEFAULT),
    );
    let mut choice = Everything {
        plain: false,
        plain_libraries: false,
        library_calls: true,
    };
    let mut rules = Vec::new();
    while let Some(argument) =
        arguments.next_if(|argument| argument.to_string_lossy().starts_with('-'))
    {
        match argument.to_string_lossy().as_ref() {
            "-P" => choice.plain = true,
            "--libraries" => choice.plain_libraries = true,
            "--no-libcall" => choice.library_calls = false,
            option @ ("-F" | "-N" | "-D" | "-t" | "-T") => {
                let option = match option {
                    "-F" => RuleOption::Filter,
                    "-N" => RuleOption::Notrace,
                    "-D" => RuleOption::Depth,
                    "-t" => RuleOption::Time,
                    _ => RuleOption::Trigger,
                };
                let text = arguments.next().unwrap_or_default();
                rules.push((option, text.to_string_lossy().into_owned()));
            }
            "--drop" => spec.on_full = OnFull::Drop,
            "-d" => spec.folder = arguments.next().unwrap_or_default().into(),
            "--memory" => spec.memory = number(arguments.next()) as usize,
            "--last" => spec.last = Some(Duration::from_secs_f64(number(arguments.next()))),
            other => {
                eprintln!("unknown option {other}");
                return ExitCode::from(2);
            }
        }
    }
    spec.command = arguments.collect();
    spec.selector = match rules.is_empty() {
        true => Box::new(choice),
        false => match selector(choice, rules) {
            Ok(selector) => Box::new(selector),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        },
    };
    match record(spec) {
        Ok(outcome) => {
            for note in &outcome.notes {
                eprintln!("note: {note}");
            }
            eprintln!("{:?}", outcome.ending);
            ExitCode::from(outcome.status.map_or(0, |status| status.exit_code()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn selector(
    choice: Everything,
    rules: Vec<(RuleOption, String)>,
) -> Result<RuleSelector, Box<dyn std::error::Error>> {
    let mut patches = PatchPatterns::new(MatchStyle::Regex);
    if choice.plain {
        patches.patch(".")?;
    }
    Ok(RuleSelector::new(Choice {
        patches,
        rules,
        style: MatchStyle::Regex,
        library_calls: match choice.library_calls {
            true => LibraryCalls::OfProgram,
            false => LibraryCalls::None,
        },
        typed_values: false,
    })?)
}

fn number(word: Option<OsString>) -> f64 {
    word.and_then(|word| word.to_str()?.parse().ok())
        .unwrap_or(0.0)
}
