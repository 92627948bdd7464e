//! One pass over the stream: sums per row, burst and group.

use rustc_hash::FxHashMap;

use super::accept::{Acceptance, Discard, Rules, Trust, judge};
use super::runs::{COUNTS, RunCounts, Runs, hidden_part, places_hold};
use super::stream::{BurstView, WindowView, Windows};

/// The counts of a row's kept windows of one group, summed for each burst: bursts are the units that repeat.
#[derive(Debug, Clone)]
pub(super) struct Clusters {
    /// The group's place in the stream.
    pub(super) group: u16,
    /// The bursts that have kept windows here, ascending.
    pub(super) bursts: Vec<u32>,
    /// Kept windows of each.
    pub(super) windows: Vec<u32>,
    /// For each, one sum for each event of the group.
    pub(super) sums: Vec<u64>,
    /// The sums over all bursts.
    totals: Vec<u64>,
    all_windows: u64,
}

impl Clusters {
    fn new(group: u16, width: usize) -> Self {
        Self {
            group,
            bursts: Vec::new(),
            windows: Vec::new(),
            sums: Vec::new(),
            totals: vec![0; width],
            all_windows: 0,
        }
    }

    fn add(&mut self, burst: u32, counts: &[u64]) {
        if self.bursts.last() != Some(&burst) {
            self.bursts.push(burst);
            self.windows.push(0);
            self.sums.resize(self.sums.len() + counts.len(), 0);
        }
        if let Some(windows) = self.windows.last_mut() {
            *windows += 1;
        }
        self.all_windows += 1;
        let start = self.sums.len() - counts.len();
        let sums = self.sums[start..].iter_mut().zip(&mut self.totals);
        for ((sum, total), count) in sums.zip(counts) {
            *sum = sum.saturating_add(*count);
            *total = total.saturating_add(*count);
        }
    }

    /// The total of the event at a place of the group.
    pub(super) fn total(&self, place: usize) -> u64 {
        self.totals[place]
    }

    /// All kept windows.
    pub(super) fn all_windows(&self) -> f64 {
        self.all_windows as f64
    }
}

/// The windows of one key of the caller's: a function, a path, a line, a thread.
#[derive(Debug, Clone)]
pub struct Row {
    key: u32,
    acceptance: Acceptance,
    runs: RunCounts,
    /// For each group that has kept windows here, in the order in which they came.
    pub(super) clusters: Vec<Clusters>,
}

impl Row {
    fn new(key: u32) -> Self {
        Self {
            key,
            acceptance: Acceptance::default(),
            runs: RunCounts::default(),
            clusters: Vec::new(),
        }
    }

    fn add(&mut self, window: &WindowView<'_>) {
        let group = window.burst.group;
        let found = self.clusters.iter().position(|c| c.group == group);
        let at = found.unwrap_or_else(|| {
            self.clusters
                .push(Clusters::new(group, window.counts.len()));
            self.clusters.len() - 1
        });
        self.clusters[at].add(window.burst_number, window.counts);
    }

    /// Where a group stands among those that have kept windows here.
    pub(super) fn place_of(&self, group: u16) -> usize {
        let mut groups = self.clusters.iter().map(|c| c.group);
        groups.position(|g| g == group).unwrap_or(0)
    }

    /// The caller's key.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Windows kept and discarded. A window belongs to the row of its end.
    pub fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// Bursts with kept windows here.
    pub fn bursts(&self) -> u64 {
        self.clusters.iter().map(|c| c.bursts.len() as u64).sum()
    }

    /// Each cause that discarded windows here, and how many.
    pub fn discards(&self) -> impl Iterator<Item = (Discard, u64)> {
        Discard::ALL
            .into_iter()
            .map(|cause| (cause, self.acceptance.discarded(cause)))
            .filter(|(_, count)| *count > 0)
    }

    /// Returns the lengths of the function's runs; `None` where no window shows them. Rows must be functions or paths: rows
    /// by thread mix their functions' runs.
    pub fn runs(&self) -> Option<Runs> {
        self.runs.runs()
    }
}

/// Windows judged and summed.
#[derive(Debug)]
pub struct Analysis<'w> {
    windows: &'w Windows,
    rules: Rules,
    rows: Vec<Row>,
    total: Row,
    keyless: Acceptance,
    /// For each window the row in which it was kept.
    kept_in: Vec<u32>,
    /// Pairs of windows that start and end in one row, with another row in the middle: the index of the row, the index of
    /// the other, and the number of such pairs.
    visits: Vec<(u32, u32, u32)>,
}

/// Another row whose function works in a row's kept windows.
pub(super) struct Hidden<'a> {
    pub(super) row: &'a Row,
    /// Its share of the windows' time.
    pub(super) share: f64,
    /// The share's standard error.
    pub(super) error: f64,
}

/// For a window that was kept nowhere.
const NO_ROW: u32 = u32::MAX;

impl Windows {
    /// Judges each window and sums the kept ones by row. `key` says which row a window belongs to, judging by its end;
    /// `None` leaves it out of all rows, not out of the total. Rows by line: a kept window may start at another line
    /// of its function.
    pub fn analyze(
        &self,
        rules: &Rules,
        mut key: impl FnMut(&WindowView<'_>) -> Option<u32>,
    ) -> Analysis<'_> {
        let mut tally = Tally {
            places: FxHashMap::default(),
            rows: Vec::new(),
            touched: Vec::new(),
            visits: FxHashMap::default(),
        };
        let mut total = Row::new(0);
        let mut keyless = Acceptance::default();
        let mut kept_in = vec![NO_ROW; self.len()];
        for burst in self.bursts() {
            // The window before, if it ends where this one starts, and its row.
            let mut before: Option<(WindowView<'_>, Option<u32>)> = None;
            for window in burst.windows() {
                let verdict = judge(&window, burst.group.drop_last, rules);
                total.acceptance.add(verdict);
                if verdict.is_none() {
                    total.add(&window);
                }
                let earlier = before
                    .take()
                    .filter(|(e, _)| e.index.checked_add(1) == Some(window.index));
                let place = key(&window).map(|key| tally.place(key));
                if places_hold(verdict) {
                    before = Some((window, place));
                }
                let Some(place) = place else {
                    keyless.add(verdict);
                    continue;
                };
                let row = &mut tally.rows[place as usize];
                row.acceptance.add(verdict);
                if verdict.is_none() {
                    row.add(&window);
                    kept_in[window.number] = place;
                }
                if places_hold(verdict) {
                    tally.note_run(place, &window, earlier);
                }
            }
            tally.end_burst();
        }
        let mut order: Vec<u32> = (0..tally.rows.len() as u32).collect();
        order.sort_unstable_by_key(|place| tally.rows[*place as usize].key);
        let mut moved = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            moved[*old as usize] = new as u32;
        }
        for place in &mut kept_in {
            if *place != NO_ROW {
                *place = moved[*place as usize];
            }
        }
        let mut visits: Vec<(u32, u32, u32)> = tally
            .visits
            .iter()
            .map(|((row, other), visits)| (moved[*row as usize], moved[*other as usize], *visits))
            .collect();
        visits.sort_unstable();
        tally.rows.sort_by_key(|row| row.key);
        Analysis {
            windows: self,
            rules: *rules,
            rows: tally.rows,
            total,
            keyless,
            kept_in,
            visits,
        }
    }
}

struct Tally {
    places: FxHashMap<u32, u32>,
    rows: Vec<Row>,
    /// Rows that the present burst met, with its own counts for their runs.
    touched: Vec<(u32, [u32; COUNTS])>,
    visits: FxHashMap<(u32, u32), u32>,
}

impl Tally {
    fn place(&mut self, key: u32) -> u32 {
        *self.places.entry(key).or_insert_with(|| {
            self.rows.push(Row::new(key));
            (self.rows.len() - 1) as u32
        })
    }

    /// Counts where the window, and the two windows that end with it, come from.
    fn note_run(
        &mut self,
        row: u32,
        window: &WindowView<'_>,
        earlier: Option<(WindowView<'_>, Option<u32>)>,
    ) {
        let away = |from: &WindowView<'_>| {
            let elsewhere = from.start.function? != window.end.function?;
            let paths = from.start.path.zip(window.end.path);
            Some(elsewhere || paths.is_some_and(|(start, end)| start != end))
        };
        let Some(once) = away(window) else { return };
        let found = self.touched.iter().position(|(touched, _)| *touched == row);
        let at = found.unwrap_or_else(|| {
            self.touched.push((row, [0; COUNTS]));
            self.touched.len() - 1
        });
        let counts = &mut self.touched[at].1;
        counts[0] += 1;
        counts[1] += u32::from(once);
        let Some((earlier, from)) = earlier else {
            return;
        };
        let twice = away(&earlier);
        if let Some(twice) = twice {
            counts[2] += 1;
            counts[3] += u32::from(twice);
            if !twice {
                counts[4] += 1;
                counts[5] += u32::from(once);
            }
        }
        let visited = from.filter(|from| once && twice == Some(false) && *from != row);
        if let Some(visited) = visited {
            *self.visits.entry((row, visited)).or_default() += 1;
        }
    }

    fn end_burst(&mut self) {
        for (row, counts) in self.touched.drain(..) {
            self.rows[row as usize].runs.add(counts);
        }
    }
}

impl<'w> Analysis<'w> {
    /// The stream.
    pub fn windows(&self) -> &'w Windows {
        self.windows
    }

    /// The rules by which windows were judged.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The rows, by key. A row without a kept window is there too.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a key.
    pub fn row(&self, key: u32) -> Option<&Row> {
        let place = self.rows.binary_search_by_key(&key, |row| row.key).ok()?;
        Some(&self.rows[place])
    }

    /// All windows as one row, with key 0: also those that belong to no row.
    pub fn total(&self) -> &Row {
        &self.total
    }

    /// Windows to which the caller gave no row.
    pub fn keyless(&self) -> &Acceptance {
        &self.keyless
    }

    /// The total of an event over a row's kept windows, all groups together.
    pub fn sum(&self, row: &Row, event: u32) -> u64 {
        let sums = self.groups_of(row).filter_map(|(events, clusters)| {
            let place = events.iter().position(|e| *e == event)?;
            Some(clusters.total(place))
        });
        sums.fold(0, u64::saturating_add)
    }

    /// The groups that have kept windows in a row: their events, and the row's sums.
    pub(super) fn groups_of<'r>(
        &'r self,
        row: &'r Row,
    ) -> impl Iterator<Item = (&'r [u32], &'r Clusters)> + Clone {
        let groups = self.windows.groups();
        row.clusters
            .iter()
            .map(move |c| (groups[usize::from(c.group)].events.as_slice(), c))
    }

    /// Returns the trust that the row's metrics deserve. The worst of three numbers decides: the discard ratio; the share of
    /// windows in which the function was left, seen or hidden ([`Runs::left`]); and the share of pairs of windows with the
    /// thread elsewhere in the middle ([`Runs::away`]). `None` if no window was good in all else.
    pub fn trust(&self, row: &Row) -> Option<Trust> {
        let seen = Trust::of(row.acceptance.discard_ratio()?, &self.rules);
        let runs = row.runs().map(|runs| runs.trust(&self.rules));
        Some(seen.max(runs.unwrap_or(Trust::High)))
    }

    /// For each row whether it deserves high trust.
    pub(super) fn trusted(&self) -> Vec<bool> {
        let trust = |row| self.trust(row) == Some(Trust::High);
        self.rows.iter().map(trust).collect()
    }

    /// Returns the rows whose functions work unseen in this row's kept windows: the thread was in them between two windows
    /// that start and end in this row. Empty for unreliable rows, which cannot be corrected.
    pub(super) fn hidden(&self, row: &Row) -> Vec<Hidden<'_>> {
        let at = self.rows.binary_search_by_key(&row.key, |r| r.key);
        let (Ok(at), Some(runs)) = (at, row.runs()) else {
            return Vec::new();
        };
        if self.trust(row) == Some(Trust::Unreliable) {
            return Vec::new();
        }
        let begin = self.visits.partition_point(|v| v.0 < at as u32);
        let visits = self.visits[begin..].iter().take_while(|v| v.0 == at as u32);
        let hidden = visits.map(|(_, other, visits)| {
            let other = &self.rows[*other as usize];
            let mean = other.runs().map_or(1.0, |runs| runs.mean);
            let visits = f64::from(*visits);
            let share = visits / runs.returns as f64 * hidden_part(mean);
            Hidden {
                row: other,
                share,
                error: share / visits.sqrt(),
            }
        });
        hidden.collect()
    }

    /// The share of the time of a row's kept windows that belongs to other rows, as far as that can be estimated, and
    /// its standard error.
    pub fn hidden_share(&self, row: &Row) -> (f64, f64) {
        let hidden = self.hidden(row);
        let variance: f64 = hidden.iter().map(|h| h.error * h.error).sum();
        (hidden.iter().map(|h| h.share).sum(), variance.sqrt())
    }

    /// The kept windows that have a row, in the order of the stream, with the row's place in [`rows`](Self::rows).
    pub(super) fn kept(&self) -> impl Iterator<Item = (WindowView<'w>, usize)> {
        let windows = self.windows.bursts().flat_map(BurstView::windows);
        windows.filter_map(|window| {
            let row = self.kept_in[window.number];
            (row != NO_ROW).then_some((window, row as usize))
        })
    }
}
