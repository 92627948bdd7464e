//! The profile of a pipe, read while it is written.

use super::load::Loader;
use crate::loading::plan::LoadPlan;
use crate::profile::Profile;
use dioptra_perfdata::{LiveRecords, OpenError, PerfData};
use dioptra_perfrecords::record::{RawRecord, Record, RecordType};
use dioptra_perfrecords::{ReadFormat, SampleType};
use dioptra_symbols::is_jit_dump;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The cause for which a recording must be complete before its first sample is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeNeeded {
    /// Copied stacks are unwound. That takes longer than recording them, so a recorder that waited for it would lose
    /// samples; and the build ids that say which files unwind them come last.
    CopiedStacks,
    /// Samples read groups of counters. The list of windows, which comes last, says which of them mark windows.
    Groups,
}

impl WholeNeeded {
    /// Returns the cause why `plan` needs the whole recording; `None` where records can be counted as they come.
    pub fn of(data: &PerfData, plan: &LoadPlan) -> Option<WholeNeeded> {
        let mut causes = data.events().iter().filter_map(|event| {
            let fields = event.attr.sample_type;
            let copies = fields.contains(SampleType::STACK_USER | SampleType::REGS_USER);
            if plan.options.call_chains && copies {
                return Some(WholeNeeded::CopiedStacks);
            }
            let reads_group = fields.contains(SampleType::READ)
                && event.attr.read_format.contains(ReadFormat::GROUP);
            reads_group.then_some(WholeNeeded::Groups)
        });
        causes.next()
    }
}

impl Profile {
    /// Reads the records of a pipe to its end, as `plan` says. The profile is that of [`Profile::load_with`] for the
    /// complete pipe. Memory follows what is counted, and the records of two rounds.
    ///
    /// `plan` must not need the whole recording ([`WholeNeeded::of`]). From the mapping of a jitdump file on the rest of the
    /// pipe is read first, into a temporary file where it is long, since that file is complete only then.
    ///
    /// # Errors
    /// If the pipe cannot be read, or the temporary file not be written.
    pub fn load_piped(
        data: &PerfData,
        records: LiveRecords,
        pipe: &mut impl Read,
        plan: &LoadPlan,
    ) -> Result<Profile, OpenError> {
        std::thread::scope(|scope| {
            let mut loader = Loader::new(data, plan, None);
            loader.learns_build_ids = true;
            if plan.log {
                loader.counting.count_beside(scope);
            }
            let maps_jit_dump = |raw: &RawRecord<'_>| maps_jit_dump(data, raw);
            let read = records.read_to_end(pipe, data, maps_jit_dump, |record| {
                loader.record(&record);
            });
            let (summary, features) = read?;
            loader.losses.summary = summary;
            loader.features = Some(features);
            Ok(loader.finish())
        })
    }
}

/// Returns whether a record is the mapping of a jitdump file.
fn maps_jit_dump(data: &PerfData, raw: &RawRecord<'_>) -> bool {
    if !matches!(raw.kind, RecordType::MMAP | RecordType::MMAP2) {
        return false;
    }
    // Mappings of all events look alike.
    let parsed = data.layout(None).map(|layout| layout.parse(raw));
    match parsed {
        Some(Ok(Record::Mmap(mmap, _))) => is_jit_dump(Path::new(OsStr::from_bytes(mmap.name))),
        _ => false,
    }
}
