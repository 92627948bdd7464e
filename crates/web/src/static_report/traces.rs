//! The answers about a trace that a static report stores.

use super::store::{Question, Share, Store};
use crate::api::{CallTimelineAnswer, FlameAnswer, ReplayAnswer, TableAnswer};
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::parameters::Parameters;
use crate::traces;

/// The numbers of rows that tables are cut to, the first that fits.
const TABLE_ROWS: [usize; 5] = [2000, 800, 300, 100, 30];
/// The numbers of nodes that graphs are cut to.
const NODES: [usize; 5] = [20_000, 8000, 3000, 1000, 300];
/// The numbers of rows that replays are cut to.
const REPLAY_ROWS: [usize; 4] = [2000, 1000, 300, 100];
/// The lanes and pixels of timelines, the first that fits.
const PICTURES: [(usize, u32); 5] = [(64, 4000), (64, 1500), (16, 1500), (16, 500), (4, 500)];
/// The number of levels that the page's timeline shows.
const LEVELS: &str = "100";
/// The number of functions whose slowest calls are stored, by total time and by self time.
const SLOWEST: usize = 40;
/// The number of calls that the page shows of each.
const SLOWEST_CALLS: &str = "200";
/// The number of threads whose selection is stored.
const THREADS: usize = 4;

/// The stored answers of one trace.
pub(super) struct TracePart<'a> {
    store: &'a mut Store,
    trace: usize,
    share: Share,
}

impl TracePart<'_> {
    pub(super) fn new(store: &mut Store, trace: usize, share: Share) -> TracePart<'_> {
        TracePart {
            store,
            trace,
            share,
        }
    }

    /// Stores the answers. Returns sentences about what the report holds of the trace, and about what it leaves out.
    pub(super) fn collect(&mut self) -> Result<(Vec<String>, Vec<String>), Failure> {
        let whole = Question::new("trace").with("profile", self.trace.to_string());
        self.store.keep(&whole, usize::MAX)?;
        let (mut holds, mut lacks) = (Vec::new(), Vec::new());
        let functions = self.table(&whole, None, 6)?;
        let threads = self.table(&whole, Some("thread"), 16)?;
        if let Some(table) = &functions {
            super::answers::say_rows(table, "longest-running", &mut holds, &mut lacks);
        }
        for weight in [None, Some("calls")] {
            let graph = self.graph(&whole, weight, 8)?;
            if let (None, Some(graph)) = (weight, &graph) {
                super::answers::say_nodes(graph, &mut holds, &mut lacks);
            }
        }
        if self.timeline(&whole, 4)?.is_some() {
            holds.push("A timeline of calls as wide as a screen.".to_owned());
            lacks.push(
                "Calls that are narrower than a pixel of that timeline, one by one.".to_owned(),
            );
        }
        if let Some(replay) = self.replay(&whole, 8)? {
            say_replay(&replay, &mut holds, &mut lacks);
        }
        let slowest = self.slowest(&whole, functions.as_ref())?;
        if slowest > 0 {
            holds.push(format!("The slowest calls of {slowest} functions."));
        }
        let threads = threads.iter().flat_map(|table| &table.rows);
        let threads: Vec<String> = threads
            .filter_map(|row| row.key.thread.clone())
            .take(THREADS)
            .collect();
        for thread in threads {
            let one = whole.clone().with("thread", thread);
            self.table(&one, None, 30)?;
            self.table(&one, Some("thread"), 100)?;
            self.graph(&one, None, 30)?;
            self.timeline(&one, 30)?;
            self.replay(&one, 30)?;
        }
        Ok((holds, lacks))
    }

    fn table(
        &mut self,
        of: &Question,
        by: Option<&str>,
        parts: usize,
    ) -> Result<Option<TableAnswer>, Failure> {
        let mut question = of.of("trace/table");
        if let Some(by) = by {
            question = question.with("by", by);
        }
        let most = self.share.most(self.store, parts);
        self.store.fit(&question, &TABLE_ROWS, most, |store, rows| {
            let mut parameters = Parameters::of(&question.query());
            let mut request = parameters.call_table()?;
            parameters.finish()?;
            request.count = Some(rows);
            traces::table(&store.shared, &request, &Ticket::default())
        })
    }

    fn graph(
        &mut self,
        of: &Question,
        weight: Option<&str>,
        parts: usize,
    ) -> Result<Option<FlameAnswer>, Failure> {
        let mut question = of.of("trace/graph");
        if let Some(weight) = weight {
            question = question.with("weight", weight);
        }
        let most = self.share.most(self.store, parts);
        self.store.fit(&question, &NODES, most, |store, nodes| {
            let asked = question.clone().with("count", nodes.to_string());
            let request = Parameters::of(&asked.query()).call_graph()?;
            traces::graph(&store.shared, &request, &Ticket::default())
        })
    }

    fn timeline(
        &mut self,
        of: &Question,
        parts: usize,
    ) -> Result<Option<CallTimelineAnswer>, Failure> {
        let question = of.of("trace/timeline").with("depth", LEVELS);
        let most = self.share.most(self.store, parts);
        let sizes: Vec<usize> = (0..PICTURES.len()).collect();
        self.store.fit(&question, &sizes, most, |store, size| {
            let (lanes, pixels) = PICTURES[size];
            let mut request = Parameters::of(&question.query()).call_timeline()?;
            request.count = Some(lanes);
            request.pixels = Some(pixels);
            traces::timeline(&store.shared, &request, &Ticket::default())
        })
    }

    fn replay(&mut self, of: &Question, parts: usize) -> Result<Option<ReplayAnswer>, Failure> {
        let question = of.of("trace/replay");
        let most = self.share.most(self.store, parts);
        self.store
            .fit(&question, &REPLAY_ROWS, most, |store, rows| {
                let mut request = Parameters::of(&question.query()).replay()?;
                request.count = Some(rows);
                traces::replay(&store.shared, &request, &Ticket::default())
            })
    }

    /// Stores the slowest calls of the first functions. Returns the number of functions.
    fn slowest(
        &mut self,
        of: &Question,
        functions: Option<&TableAnswer>,
    ) -> Result<usize, Failure> {
        let rows = functions.iter().flat_map(|table| &table.rows);
        let keys: Vec<String> = rows
            .filter_map(|row| row.key.function.clone())
            .take(SLOWEST)
            .collect();
        let mut stored = 0;
        for key in keys {
            let question = of.of("trace/slowest").with("function", key);
            let answer = self
                .store
                .ask(&question.clone().with("count", SLOWEST_CALLS));
            let most = self.share.most(self.store, 60);
            stored += usize::from(self.store.keep_answer(&question, answer, most)?);
        }
        Ok(stored)
    }
}

fn say_replay(replay: &ReplayAnswer, holds: &mut Vec<String>, lacks: &mut Vec<String>) {
    let (stored, all) = (replay.rows.len() as u64, replay.total_rows);
    match stored < all {
        true => {
            holds.push(format!("The first {stored} of {all} rows of the replay."));
            lacks.push(format!("The {} later rows of the replay.", all - stored));
        }
        false => holds.push(format!("The whole replay, {all} rows.")),
    }
}
