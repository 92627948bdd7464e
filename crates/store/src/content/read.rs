//! The reading of recordings.

use super::{Content, rows};
use crate::error::StoreError;
use crate::labels::{ChosenLabels, Labels, UNKNOWN, check_label, date_of};
use dioptra_export::{Lost, LostKind, Origin, Source};
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::SampleType;
use dioptra_profile::{DebugInfoWanted, KernelSamples, LoadOptions, LoadPlan, Names, Profile};
use dioptra_report::profile_facts;
use dioptra_symbols::SymbolOptions;
use dioptra_tables::{Severity, escape};
use dioptra_windows::section::WindowsSection;
use rows::signed;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The options of reading a recording.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The labels that the user chose.
    pub labels: ChosenLabels,
    /// The places where names are looked for.
    pub symbols: SymbolOptions,
    /// Whether the time of inlined functions counts for the function that contains them.
    pub no_inline: bool,
}

/// Reads a recording into the rows of a store.
///
/// # Errors
/// The file is no recording or is damaged, or a value is too large for a store.
pub(crate) fn read(
    path: &Path,
    (profile_id, file_bytes): (String, u64),
    options: &ReadOptions,
) -> Result<Content, StoreError> {
    let mut data = PerfData::open(path)?;
    let windows = WindowsSection::of(&mut data, Some(path));
    let set_aside = windows.as_ref().map(|windows| windows.events(&data));
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: true,
            threads: true,
        },
        cpus: samples_tell(&data, SampleType::CPU),
        log: samples_tell(&data, SampleType::TIME),
        set_aside: set_aside.unwrap_or_default(),
        // `dioptra report` counts them so, too.
        kernel: KernelSamples::WithCallerOfSetAside,
        symbols: options.symbols.clone(),
        ..LoadPlan::default()
    };
    let profile = Profile::load_with(&data, &plan);
    if let Some(offset) = profile.losses().summary.stopped_at {
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            offset,
        });
    }
    let mut names = Names::find(&profile, options.symbols.clone());
    if !options.no_inline {
        let inlined = DebugInfoWanted {
            lines: false,
            inlined: true,
        };
        names.find_debug_info(&profile, options.symbols.clone(), inlined);
    }
    let origin = Origin::of(data.features());
    let events = profile.sampled_events();
    let source = Source {
        profile: &profile,
        names: &names,
        events: &events,
        origin: &origin,
    };
    let written = rows::write(&source)?;
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
    let labels = labels(path, &options.labels, &origin, start_ns, &mut warnings)?;
    let command = Some(origin.command_line.join(" ")).filter(|command| !command.is_empty());
    Ok(Content {
        profile_id,
        labels,
        start_ns,
        duration_ns: written.duration_ns,
        command,
        kernel: origin.os_release.clone(),
        arch: origin.arch.clone(),
        cpu_model: origin.cpu.clone(),
        file_bytes: signed("file_bytes", file_bytes)?,
        totals: written.totals,
        warnings,
        lost: lost(&source, windows.is_some()),
        rows: written.rows,
    })
}

/// Returns whether any event records the sample field.
fn samples_tell(data: &PerfData, field: SampleType) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| event.attr.sample_type.contains(field))
}

/// Returns the profile's labels: the chosen ones, else those that the recording tells.
fn labels(
    path: &Path,
    chosen: &ChosenLabels,
    origin: &Origin,
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
    let host = match (&chosen.host, &origin.hostname) {
        (Some(host), _) => host.clone(),
        (None, Some(host)) if !host.is_empty() => {
            check_label("host", host)?;
            host.clone()
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
fn lost(source: &Source<'_>, has_windows: bool) -> Vec<String> {
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
        lost.push(format!(
            "{}, and their source lines",
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
    let others = (0..profile.events().len()).filter(|event| !source.events.contains(event));
    let aside: u64 = others
        .map(|event| profile.events()[event].total().samples)
        .sum();
    if aside > 0 {
        lost.push(format!(
            "{} that do not show where time went",
            samples(aside)
        ));
    }
    if has_windows {
        lost.push("the counters of windows".to_owned());
    }
    lost
}
