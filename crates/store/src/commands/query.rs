//! `query`: SQL and named questions.

use super::{Patience, duration, size};
use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use dioptra_store::{
    Chosen, FlameOptions, OutputFormat, RegressionOptions, SampleSet, Session, StackValues, Store,
    TopOptions, flame, regressions, top_functions, write_answer, write_page,
};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Arguments of `query`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra query --store profiles top-functions --since 7d --group-by service
  dioptra query --store profiles regressions --from 2026-11-01 --to 2026-11-02
  dioptra query --store profiles flame --service web --format flamegraph -o web.svg
  dioptra query --store profiles top-functions --format html -o top.html
  dioptra query --store profiles \"SELECT sum(weight) FROM samples WHERE stack_contains(frames, 'parse')\"
  dioptra query --store profiles --format parquet -o hot.parquet 'SELECT * FROM samples LIMIT 1000'
  dioptra query --show-views                     the SQL of the views, for other engines

Views: profiles, samples, stacks, functions, modules, mappings, windows, window_totals, calls, call_estimates.
docs/store.md describes their columns.")]
#[command(
    args_conflicts_with_subcommands = false,
    subcommand_precedence_over_arg = true
)]
pub struct Arguments {
    /// A query in SQL
    #[arg(value_name = "SQL")]
    sql: Option<String>,
    /// The store: a folder, or s3://BUCKET/PATH
    #[arg(long, value_name = "STORE", global = true)]
    store: Option<String>,
    /// The format of the answer
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    format: Format,
    /// The file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", global = true)]
    output: PathBuf,
    /// Show the SQL that makes the views in another engine
    #[arg(long)]
    show_views: bool,
    /// Also show, on standard error, the SQL that was asked, a statement a line: other engines answer it, too
    #[arg(long, global = true)]
    show_sql: bool,
    /// The memory that the query may take, such as 500M or 8G; what has no place in it is written to temporary files
    /// (TMPDIR) [default: a third of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = size, global = true)]
    memory: Option<u64>,
    #[command(flatten)]
    patience: Patience,
    #[command(subcommand)]
    question: Option<Question>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns
    Text,
    /// Comma-separated values
    Csv,
    /// A JSON array with an object for each row
    Json,
    /// A Parquet file
    Parquet,
    /// A flame graph (SVG) of an answer with the columns `frames` and `weight`, `samples`, `value` or `self_ns`
    Flamegraph,
    /// A page with a table that can be sorted
    Html,
}

#[derive(Subcommand)]
enum Question {
    /// Show the functions with the most time
    TopFunctions(Top),
    /// Show the functions whose share of the time grew, and whether chance may have made it
    Regressions(Regressions),
    /// Write collapsed stacks, or a flame graph with --format flamegraph
    Flame(Flame),
}

/// The samples that a question is about.
#[derive(clap::Args)]
struct Filter {
    /// The event [default: the one with the most samples]
    #[arg(short, long, value_name = "EVENT")]
    event: Option<String>,
    /// This service only
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// This machine only
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Samples of this last time only, such as 7d, 12h or 30m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    since: Option<Duration>,
}

#[derive(clap::Args)]
struct Top {
    #[command(flatten)]
    filter: Filter,
    /// Show the functions of each value apart: service, host, date, process, comm, cpu, profile_id
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    group_by: Vec<String>,
    /// The most functions, of each group
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
}

#[derive(clap::Args)]
struct Regressions {
    #[command(flatten)]
    filter: Filter,
    /// The samples before: DATE, DATE..DATE, digits of a profile's id, service=NAME or host=NAME; several with commas
    #[arg(long, value_name = "SAMPLES")]
    from: String,
    /// The samples after
    #[arg(long, value_name = "SAMPLES")]
    to: String,
    /// Show functions whose share shrank, too
    #[arg(long)]
    all: bool,
    /// The most functions
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

#[derive(clap::Args)]
struct Flame {
    #[command(flatten)]
    filter: Filter,
    /// Write numbers of samples instead of weights
    #[arg(long)]
    samples: bool,
}

impl Filter {
    fn chosen(&self) -> anyhow::Result<Chosen> {
        let since = match self.since {
            None => None,
            Some(since) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
                let start = now.saturating_sub(since).as_nanos();
                Some(i64::try_from(start)?)
            }
        };
        Ok(Chosen {
            event: self.event.clone(),
            service: self.service.clone(),
            host: self.host.clone(),
            since,
            until: None,
        })
    }
}

/// Answers the query.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let to_stdout = arguments.output.as_os_str() == "-";
    if arguments.show_views {
        for statement in dioptra_store::views::statements() {
            println!("{statement};");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.sql.is_none() && arguments.question.is_none() {
        bail!("give a query in SQL, or a question: top-functions, regressions, flame");
    }
    let Some(place) = &arguments.store else {
        bail!("name the store with --store");
    };
    if arguments.format == Format::Parquet && to_stdout && std::io::stdout().is_terminal() {
        bail!("Parquet is no text for a terminal; redirect it, or give a file with -o");
    }
    let store = Store::open_within(place, arguments.patience.timeout)?;
    let session = Session::open_with_memory(&store, arguments.memory)?;
    let (answer, event) = match &arguments.question {
        None => {
            let sql = arguments.sql.as_deref().unwrap_or_default();
            (session.sql(sql)?, None)
        }
        Some(Question::TopFunctions(top)) => {
            let options = TopOptions {
                chosen: top.filter.chosen()?,
                group_by: top.group_by.clone(),
                limit: top.limit,
            };
            let (answer, event) = top_functions(&session, &options)?;
            (answer, Some(event))
        }
        Some(Question::Regressions(regressed)) => {
            let options = RegressionOptions {
                chosen: regressed.filter.chosen()?,
                from: SampleSet::parse(&regressed.from)?,
                to: SampleSet::parse(&regressed.to)?,
                all: regressed.all,
                limit: regressed.limit,
            };
            let (answer, event) = regressions(&session, &options)?;
            (answer, Some(event))
        }
        Some(Question::Flame(asked)) => {
            let options = FlameOptions {
                chosen: asked.filter.chosen()?,
                samples: asked.samples,
            };
            if ![Format::Text, Format::Flamegraph].contains(&arguments.format) {
                bail!("flame has the formats text (collapsed stacks) and flamegraph");
            }
            let stacks = flame(&session, &options)?;
            let mut out = open(&arguments.output)?;
            match arguments.format {
                Format::Flamegraph => write_svg(&stacks, &mut *out)?,
                _ => stacks.write_collapsed(&mut *out)?,
            }
            out.flush()?;
            show_sql(arguments, &session);
            eprintln!("# event: {}", stacks.name);
            return Ok(ExitCode::SUCCESS);
        }
    };
    let write = |out: &mut (dyn Write + Send)| -> anyhow::Result<()> {
        let format = match arguments.format {
            Format::Text => OutputFormat::Text,
            Format::Csv => OutputFormat::Csv,
            Format::Json => OutputFormat::Json,
            Format::Parquet => OutputFormat::Parquet,
            Format::Flamegraph => return write_svg(&StackValues::of_answer(&answer)?, out),
            Format::Html => {
                let question = match (&arguments.sql, &event) {
                    (Some(sql), _) => sql.clone(),
                    (None, event) => words(event.as_deref()),
                };
                return Ok(write_page(&answer, &question, out)?);
            }
        };
        Ok(write_answer(&answer, format, out)?)
    };
    let mut out = open(&arguments.output)?;
    write(&mut *out)?;
    out.flush()?;
    show_sql(arguments, &session);
    if let Some(event) = event {
        eprintln!("# event: {event}");
    }
    if let Some(Question::Regressions(_)) = &arguments.question {
        eprintln!(
            "# shares of each side's whole, in percent; * ** ***: at most 5 %, 1 %, 0.1 % of the rows so marked \
             are there by chance of sampling; runs differ by more than that"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the words of the question as they were typed, and its event.
fn words(event: Option<&str>) -> String {
    let words = std::env::args().skip_while(|word| word != "query");
    let words = words.collect::<Vec<_>>().join(" ");
    match event {
        Some(event) => format!("{words}\nevent: {event}"),
        None => words,
    }
}

/// Writes a flame graph.
fn write_svg(stacks: &StackValues, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let narrow = stacks.write_svg(out)?;
    if narrow > 0 {
        eprintln!("# {narrow} frames are too narrow to draw");
    }
    Ok(())
}

/// Shows the queries that were asked, if that is wanted.
fn show_sql(arguments: &Arguments, session: &Session) {
    for sql in session.asked().iter().filter(|_| arguments.show_sql) {
        // A query that the user wrote may have several lines.
        eprintln!("# SQL: {}", dioptra_tables::escape(sql));
    }
}

/// Opens the file for an answer; `-` is standard output.
fn open(path: &Path) -> anyhow::Result<Box<dyn Write + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufWriter::new(std::io::stdout())));
    }
    let file = File::create(path).with_context(|| path.display().to_string())?;
    Ok(Box::new(BufWriter::new(file)))
}
