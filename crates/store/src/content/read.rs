//! The reading of recordings.

use super::functions::Functions;
use super::{Content, Kind, mappings, rows, traced, windows};
use crate::error::StoreError;
use crate::labels::{ChosenLabels, Labels, UNKNOWN, check_label, date_of};
use dioptra_export::{Lost, LostKind, Origin, Source};
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::SampleType;
use dioptra_profile::{DebugInfoWanted, KernelSamples, LoadOptions, LoadPlan, Names, Profile};
use dioptra_report::profile_facts;
use dioptra_symbols::SymbolOptions;
use dioptra_tables::{Severity, escape};
use dioptra_windows::collect::WindowCollector;
use dioptra_windows::section::WindowsSection;
use rows::signed;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The most calls of a trace that are stored one by one, unless the caller chooses another number.
pub const DEFAULT_EACH_CALL: u64 = 200_000;

/// The options of reading a recording or a trace.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The labels that the user chose.
    pub labels: ChosenLabels,
    /// The places where names are looked for.
    pub symbols: SymbolOptions,
    /// Whether the time of inlined functions counts for the function that contains them.
    pub no_inline: bool,
    /// Whether samples have their addresses and source lines.
    pub addresses: bool,
    /// The most calls of a trace that are stored one by one. Calls of other traces are summed by thread and call stack.
    pub each_call: u64,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            labels: ChosenLabels::default(),
            symbols: SymbolOptions::default(),
            no_inline: false,
            addresses: false,
            each_call: DEFAULT_EACH_CALL,
        }
    }
}

/// A recording or a trace, with the id and the size of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub path: PathBuf,
    pub kind: Kind,
    pub profile_id: String,
    pub bytes: u64,
}

impl Input {
    /// Finds out whether there is a recording or the directory of a trace, and reads its bytes once for the id.
    ///
    /// # Errors
    /// The file can't be read, or a directory is no trace.
    pub(crate) fn of(path: &Path) -> Result<Input, StoreError> {
        let (kind, (profile_id, bytes)) = match path.is_dir() {
            true => (Kind::Trace, traced::content_id(path)?),
            false => (
                Kind::Profile,
                crate::ids::of_file(path).map_err(StoreError::file(path))?,
            ),
        };
        Ok(Input {
            path: path.to_owned(),
            kind,
            profile_id,
            bytes,
        })
    }
}

/// Reads a recording or a trace into the rows of a store.
///
/// # Errors
/// The file is no recording or is damaged, or a value is too large for a store.
pub(crate) fn read(input: &Input, options: &ReadOptions) -> Result<Content, StoreError> {
    match input.kind {
        Kind::Profile => read_profile(input, options),
        Kind::Trace => traced::read(input, options),
    }
}

fn read_profile(input: &Input, options: &ReadOptions) -> Result<Content, StoreError> {
    let path = &*input.path;
    let mut data = PerfData::open(path)?;
    let section = WindowsSection::of(&mut data, Some(path));
    let set_aside = section.as_ref().map(|windows| windows.events(&data));
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: true,
            threads: true,
        },
        cpus: samples_tell(&data, SampleType::CPU),
        log: samples_tell(&data, SampleType::TIME),
        mappings: true,
        set_aside: set_aside.unwrap_or_default(),
        // `dioptra report` counts them so, too.
        kernel: KernelSamples::WithCallerOfSetAside,
        symbols: options.symbols.clone(),
        ..LoadPlan::default()
    };
    let collector = section
        .as_ref()
        .and_then(|section| WindowCollector::new(&data, Some(section)));
    let (profile, collected) = match collector {
        Some(mut collector) => {
            let profile = Profile::load_visited(&data, &plan, &mut collector);
            (profile, Some(collector.finish()))
        }
        None => (Profile::load_with(&data, &plan), None),
    };
    if let Some(offset) = profile.losses().summary.stopped_at {
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            offset,
        });
    }
    let mut names = Names::find(&profile, options.symbols.clone());
    let wanted = DebugInfoWanted {
        lines: options.addresses,
        inlined: !options.no_inline,
    };
    if wanted != DebugInfoWanted::default() {
        names.find_debug_info(&profile, options.symbols.clone(), wanted);
    }
    let origin = Origin::of(data.features());
    let events = profile.sampled_events();
    let source = Source {
        profile: &profile,
        names: &names,
        events: &events,
        origin: &origin,
    };
    let mut functions = Functions::new(&source);
    let written = rows::write(&source, &mut functions, options.addresses)?;
    let mut later = vec![written.rows, mappings::write(&source, &mut functions)];
    if let Some(collected) = &collected {
        later.push(windows::write(&source, collected, &mut functions)?);
    }
    if let Some(section) = &section {
        later.push(windows::write_totals(section)?);
    }
    let mut rows = Vec::from(functions.into_identities().into_rows());
    rows.extend(later);
    let first = profile.first_time();
    let start_ns = first.and_then(|first| origin.wall_clock(first));
    let start_ns = start_ns
        .map(|start| signed("start_ns", start))
        .transpose()?;
    let facts = profile_facts(&profile, &names, &events);
    let mut warnings: Vec<String> = facts
        .iter()
        .filter(|fact| fact.severity != Severity::Info)
        .map(|fact| escape(&fact.text))
        .collect();
    let host = origin.hostname.as_deref();
    let labels = labels(path, &options.labels, host, start_ns, &mut warnings)?;
    let command = Some(origin.command_line.join(" ")).filter(|command| !command.is_empty());
    Ok(Content {
        kind: Kind::Profile,
        profile_id: input.profile_id.clone(),
        labels,
        start_ns,
        duration_ns: written.duration_ns,
        command,
        kernel: origin.os_release.clone(),
        arch: origin.arch.clone(),
        cpu_model: origin.cpu.clone(),
        file_bytes: signed("file_bytes", input.bytes)?,
        totals: written.totals,
        calls: 0,
        warnings,
        lost: lost(&source, options.addresses, &plan.set_aside),
        rows,
    })
}

/// Returns whether any event records the sample field.
fn samples_tell(data: &PerfData, field: SampleType) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| event.attr.sample_type.contains(field))
}

/// Returns the profile's labels: the chosen ones, else those that the recording tells.
pub(super) fn labels(
    path: &Path,
    chosen: &ChosenLabels,
    recorded_host: Option<&str>,
    start_ns: Option<i64>,
    warnings: &mut Vec<String>,
) -> Result<Labels, StoreError> {
    chosen.check()?;
    let date = match (&chosen.date, start_ns) {
        (Some(date), _) => date.clone(),
        (None, Some(start)) => date_of(start),
        (None, None) => {
            let changed = std::fs::metadata(path)
                .and_then(|metadata| metadata.modified())
                .map_err(StoreError::file(path))?;
            let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
            warnings.push(
                "the recording does not state its date; the date is that of the file's last change"
                    .to_owned(),
            );
            date_of(i64::try_from(since.as_nanos()).unwrap_or(0))
        }
    };
    let host = match (&chosen.host, recorded_host) {
        (Some(host), _) => host.clone(),
        (None, Some(host)) if !host.is_empty() => {
            check_label("host", host)?;
            host.to_owned()
        }
        (None, _) => UNKNOWN.to_owned(),
    };
    let service = chosen.service.clone();
    Ok(Labels {
        date,
        service: service.unwrap_or_else(|| UNKNOWN.to_owned()),
        host,
    })
}

/// Returns the parts of the recording that the store has no place for.
fn lost(source: &Source<'_>, has_addresses: bool, windowed: &[usize]) -> Vec<String> {
    let profile = source.profile;
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let with_field = |field: SampleType| -> u64 {
        let events = source.events.iter().map(|event| &profile.events()[*event]);
        let with = events.filter(|event| event.attr().sample_type.contains(field));
        with.map(|event| event.total().samples).sum()
    };
    let samples = |count: u64| match count {
        1 => "1 sample".to_owned(),
        _ => format!("{count} samples"),
    };
    let mut lost = Vec::new();
    let locations = count(profile.frames().len());
    if locations > 0 {
        let kind = LostKind::Addresses;
        let of_callers = match has_addresses {
            true => " of callers",
            false => "",
        };
        lost.push(format!(
            "{}{of_callers}, and their source lines",
            Lost {
                kind,
                count: locations
            }
        ));
    }
    for (field, what) in [
        (SampleType::BRANCH_STACK, "the branch records of"),
        (SampleType::DATA_SRC, "the memory accesses of"),
    ] {
        let with = with_field(field);
        if with > 0 {
            lost.push(format!("{what} {}", samples(with)));
        }
    }
    let others = (0..profile.events().len())
        .filter(|event| !source.events.contains(event) && !windowed.contains(event));
    let aside: u64 = others
        .map(|event| profile.events()[event].total().samples)
        .sum();
    if aside > 0 {
        lost.push(format!(
            "{} that do not show where time went",
            samples(aside)
        ));
    }
    lost
}
