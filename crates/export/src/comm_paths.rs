//! The counts of one event by thread name and path of functions.

use crate::paths::{PathId, Paths};
use crate::source::Source;
use dioptra_profile::{Count, FunctionId};
use hashbrown::HashMap;

/// The count of a path in the threads of one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommPath {
    /// The thread's name, in [`CommPaths::comms`].
    pub comm: u32,
    pub path: PathId,
    pub count: Count,
}

/// The counts of one event by thread name and path.
pub(crate) struct CommPaths {
    paths: Paths,
    /// The names of threads, each once.
    pub comms: Vec<String>,
    /// Ordered by thread name and path, each pair once.
    pub list: Vec<CommPath>,
}

impl CommPaths {
    pub(crate) fn of(source: &Source<'_>, event: usize) -> CommPaths {
        let paths = Paths::of(source);
        let mut comms: Vec<String> = Vec::new();
        let mut comm_ids: HashMap<String, u32> = HashMap::new();
        // By sample key.
        let comm_of: Vec<u32> = (0..source.profile.sample_keys().len())
            .map(|key| {
                let comm = source.comm_of(u32::try_from(key).unwrap_or(0));
                *comm_ids.entry(comm).or_insert_with_key(|comm| {
                    comms.push(comm.clone());
                    // There are at most as many names as sample keys, whose ids have 32 bits.
                    u32::try_from(comms.len() - 1).unwrap_or(u32::MAX)
                })
            })
            .collect();
        let mut list: Vec<CommPath> = Vec::new();
        source
            .profile
            .counts(source.event(event), |key, stack, count| {
                list.push(CommPath {
                    comm: comm_of[key as usize],
                    path: paths.of_stack(stack),
                    count,
                });
            });
        list.sort_unstable_by(|one, other| {
            let by_name = comms[one.comm as usize].cmp(&comms[other.comm as usize]);
            by_name.then(one.path.cmp(&other.path))
        });
        list.dedup_by(|next, kept| {
            let same = (next.comm, next.path) == (kept.comm, kept.path);
            if same {
                kept.count.add(next.count);
            }
            same
        });
        CommPaths { paths, comms, list }
    }

    /// Writes the functions of a path into `into`, outermost first.
    pub(crate) fn functions(&self, path: PathId, into: &mut Vec<FunctionId>) {
        self.paths.functions(path, into);
    }
}
