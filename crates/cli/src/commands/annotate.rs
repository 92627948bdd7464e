//! `dioptra annotate`.

use super::nothing::Filters;
use super::profiles::{Span, cpus, find_events, open, time};
use crate::exit::Exit;
use crate::remedies;
use crate::screen::{Screen, ScreenArguments, Spelling, is_utf8};
use crate::symbol_sources::ProfileSource;
use anyhow::{Context, bail};
use clap::ValueEnum;
use dioptra_instructions::{Credit, Syntax};
use dioptra_profile::{LoadPlan, Names, Profile, SampleFilter};
use dioptra_report::{
    AnnotateOptions, AnnotationStyle, AnnotationView, Drawing, annotate, find_function,
    write_annotation, write_annotation_dot, write_annotation_json, write_annotation_ndjson,
};
use dioptra_symbols::{SymbolOptions, Symbolizer};
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Arguments of `dioptra annotate`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra annotate                           the hottest function of perf.data
  dioptra annotate parse                     a function by its name, demangled or as the linker knows it
  dioptra annotate pars                      or by a part of it that no other function with samples has
  dioptra annotate libm.so.6:exp             in this module
  dioptra annotate libm.so.6:0x2a1f0         by an address in it, as objdump shows them
  dioptra annotate parse --source            its source lines only
  dioptra annotate parse --limit 3           its three hottest blocks
  dioptra annotate parse --format dot | dot -Tsvg > parse.svg
  dioptra annotate parse --source-path /build=$HOME/src")]
pub struct Arguments {
    /// The function: NAME or a part that only one has, MODULE:NAME, MODULE:0xADDRESS or 0xADDRESS [default: the hottest
    /// one]
    #[arg(value_name = "FUNCTION")]
    function: Option<String>,
    /// The profile; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,
    /// Show source lines only
    #[arg(long, conflicts_with = "asm")]
    source: bool,
    /// Show instructions only
    #[arg(long)]
    asm: bool,
    /// Show this event only, by name or number from 1; may be given several times
    #[arg(long, short, value_name = "EVENT")]
    event: Vec<String>,
    /// Show only this many of the hottest blocks; with --source lines [default: all; at a terminal 100 lines around the
    /// hottest instructions]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show the whole function at a terminal, too
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// With --source: show this many lines around those with code
    #[arg(long, value_name = "LINES", default_value_t = 2)]
    context: u32,
    /// With --source: of inlined code, count the line that it was made from, or the one in the function that led to it
    #[arg(long, value_enum, default_value_t = Line::Innermost)]
    credit: Line,
    /// Count samples of threads with these names only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,
    /// Count samples of these threads only
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Count samples on these CPUs only, such as 0,2-5
    #[arg(long, value_name = "CPUS", value_delimiter = ',', value_parser = cpus)]
    cpu: Vec<RangeInclusive<u32>>,
    /// Count samples of this time only: seconds since the first sample, from A on, up to before B; either may be empty
    #[arg(long, value_name = "A..B", value_parser = time)]
    time: Option<Span>,
    /// Output format
    #[arg(long, value_enum, default_value_t = AnnotationFormat::Text)]
    format: AnnotationFormat,
    /// Syntax of x86 instructions
    #[arg(long, value_enum, default_value_t = Writing::Att)]
    syntax: Writing,
    /// Characters that draw jumps [default: as the locale allows]
    #[arg(long, value_enum)]
    arrows: Option<Arrows>,
    #[command(flatten)]
    origin: ProfileSource,
    #[command(flatten)]
    screen: ScreenArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AnnotationFormat {
    /// For people
    Text,
    /// All there is, in full precision
    Json,
    /// As JSON, an object on a line of its own for each instruction; the first line has everything else
    Ndjson,
    /// The blocks and the ways between them, for Graphviz
    Dot,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Line {
    /// The line that it was made from
    Innermost,
    /// The line in the function itself
    Outermost,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Writing {
    /// As objdump writes them: source first
    Att,
    /// As their makers do: destination first
    Intel,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arrows {
    Unicode,
    Ascii,
    None,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut options = arguments.origin.symbols.options()?;
    let recording = open(&arguments.input)?;
    let filter = SampleFilter {
        comms: arguments.comm.clone(),
        tids: arguments.tid.clone(),
        cpus: arguments.cpu.clone(),
        time: arguments.time.unwrap_or_default(),
    };
    let profile = Profile::load_with(
        &recording.data,
        &LoadPlan {
            set_aside: recording.set_aside(),
            branches: true,
            memory: true,
            errors: true,
            filter: filter.clone(),
            symbols: options.clone(),
            ..LoadPlan::default()
        },
    );
    Filters {
        samples: &filter,
        modules: &[],
        functions: &[],
        symbols: &options,
    }
    .check(&[(&arguments.input, &profile)])?;
    let events = match arguments.event.as_slice() {
        [] => profile.sampled_events(),
        wanted => find_events(&profile, wanted)?,
    };
    options
        .recorded_kernel
        .get_or_insert_with(|| profile.recorded_kernel().clone());
    let names = Names::find(
        &profile,
        SymbolOptions {
            demangle: false,
            ..options.clone()
        },
    );
    let demangle = options.demangle;
    let symbolizer = Symbolizer::new(options);
    let wanted = arguments.function.as_deref();
    let found = find_function(&profile, &names, &symbolizer, &events, wanted)
        .with_context(|| arguments.input.display().to_string())?;
    let mut annotation = annotate(
        &profile,
        &names,
        &symbolizer,
        &found,
        &AnnotateOptions {
            events: Some(events),
            syntax: match arguments.syntax {
                Writing::Att => Syntax::AtAndT,
                Writing::Intel => Syntax::Intel,
            },
            demangle,
            sources: arguments.origin.files(),
        },
    );
    remedies::spell(&mut annotation.facts);
    let screen = arguments.screen.screen();
    let spelling = match arguments.format {
        AnnotationFormat::Text => Spelling::Done,
        AnnotationFormat::Json | AnnotationFormat::Ndjson => Spelling::Json,
        AnnotationFormat::Dot => Spelling::Text,
    };
    if arguments.format == AnnotationFormat::Dot && !annotation.has_code {
        annotation.facts.write_text(&mut io::stderr().lock())?;
        bail!("there is no graph without the function's code");
    }
    screen.show(spelling, |out| {
        match arguments.format {
            AnnotationFormat::Text => {
                write_annotation(&annotation, &style(&arguments, &screen), out)?
            }
            AnnotationFormat::Json => write_annotation_json(&annotation, out)?,
            AnnotationFormat::Ndjson => write_annotation_ndjson(&annotation, out)?,
            AnnotationFormat::Dot => write_annotation_dot(&annotation, out)?,
        }
        Ok(())
    })?;
    let summary = &profile.losses().summary;
    if let Some(offset) = summary.stopped_at {
        bail!(
            "{}: damaged at byte {offset}, where reading stopped; what lies before is shown. Copy or record it again",
            arguments.input.display()
        );
    }
    Ok(Exit::Done)
}

/// The number of lines shown at a terminal unless the user gives a number.
const LINES_AT_A_TERMINAL: usize = 100;

fn style(arguments: &Arguments, screen: &Screen) -> AnnotationStyle {
    AnnotationStyle {
        view: match (arguments.source, arguments.asm) {
            (true, _) => AnnotationView::Source,
            (_, true) => AnnotationView::Assembly,
            _ => AnnotationView::Mixed,
        },
        drawing: match arguments.arrows {
            Some(Arrows::Unicode) => Drawing::Unicode,
            Some(Arrows::Ascii) => Drawing::Ascii,
            Some(Arrows::None) => Drawing::None,
            None if is_utf8() => Drawing::Unicode,
            None => Drawing::Ascii,
        },
        color: screen.color,
        limit: arguments.limit,
        lines: (screen.is_sized && !arguments.all).then_some(LINES_AT_A_TERMINAL),
        width: screen.is_sized.then_some(screen.width),
        context: arguments.context,
        credit: match arguments.credit {
            Line::Innermost => Credit::Innermost,
            Line::Outermost => Credit::Outermost,
        },
    }
}
