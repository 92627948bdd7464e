//! Metrics from windows: a row for each function, path, line or thread, its share of the time, and ratios of counters
//! with their intervals.
//!
//! A profile with windows ([`CollectedWindows`]) gives ratios of sums over the windows that lie in one
//! function; one whose events were sampled each for itself gives ratios of sampled counts, with Poisson errors. The
//! table says which.

mod beside;
mod columns;
mod error;
mod facts;
mod measure;
mod metrics;
mod rows;
mod sampled;
mod stream;

pub use beside::{add_window_differences, add_window_metrics, has_recorded_windows};
pub use error::DisplayError;
pub use rows::WindowRows;

use crate::collect::CollectedWindows;
use crate::estimate::Trust;
use dioptra_report::{Input, MetricColumns, adjusted, profile_facts};
use dioptra_tables::{Direction, Facts, Remedy, Severity, Table};
use measure::{Measured, MeasuredRow, MetricValue, TrustShares};
use rows::Rows;
use serde_json::json;

/// A profile with the windows that were collected while it was loaded.
#[derive(Clone, Copy)]
pub struct WindowInput<'a> {
    /// The profile and its names.
    pub report: Input<'a>,
    /// Its windows; `None` if none were collected.
    pub windows: Option<&'a CollectedWindows>,
}

/// The options of a table of windows' metrics.
#[derive(Clone, Debug)]
pub struct WindowOptions<'a> {
    /// The kind of the rows.
    pub by: WindowRows,
    /// The metrics.
    pub metrics: &'a [MetricColumns<'a>],
    /// Whether facts name the metrics of whole sets that have no value: not if nobody asked for the set.
    pub tell_missing: bool,
    /// The event whose samples show where time went; `None` for the first that was sampled.
    pub ranking: Option<usize>,
    /// Rows with a smaller share of the time are left out, from 0 to 1.
    pub least_share: f64,
    /// Rows that can be trusted less are left out.
    pub least_trust: Trust,
    /// Whether shares and rates are compared with what was counted over the whole run: only where nothing was filtered
    /// away.
    pub closure: bool,
    /// For people: errors beside values are the farther limit of the 95 % interval. Else they are standard errors, and
    /// the limits have columns of their own.
    pub for_people: bool,
}

impl Default for WindowOptions<'_> {
    /// Functions, all of them, for people; no metrics.
    fn default() -> Self {
        WindowOptions {
            by: WindowRows::Function,
            metrics: &[],
            tell_missing: true,
            ranking: None,
            least_share: 0.0,
            least_trust: Trust::Unreliable,
            closure: true,
            for_people: true,
        }
    }
}

/// Builds the table of metrics of one profile, sorted by share of time, largest first.
///
/// Columns: `share_percent`, a column for each metric, where there are windows `kept_windows`, `windows`,
/// `discarded_percent`, `trust` and `needs` (about how much longer the first metric takes to be known within 5 %, empty beyond an hour), and
/// the names. For programs each metric also
/// has its limits, the values with and without what windows' borders add, bursts and counts behind it.
///
/// # Errors
/// [`DisplayError::NoWindows`] where the profile has neither windows nor samples of two events; else as
/// [`dioptra_report::report()`].
pub fn window_metrics(
    windowed: &WindowInput<'_>,
    options: &WindowOptions<'_>,
) -> Result<Table, DisplayError> {
    Ok(window_metrics_with_keys(windowed, options)?.0)
}

/// Builds the table of [`window_metrics`], and returns by row id the function, line, module, thread or process of the
/// row; for rows by path the innermost function.
///
/// # Errors
/// The errors of [`window_metrics`].
pub fn window_metrics_with_keys(
    windowed: &WindowInput<'_>,
    options: &WindowOptions<'_>,
) -> Result<(Table, Vec<u32>), DisplayError> {
    let input = &windowed.report;
    let rows = Rows::new(input, options.by)?;
    let measured = measure(windowed, options, &rows)?;
    let labels = rows.labels(input);
    let mut table = Table::new(columns::heads(&measured, &rows, &labels, options));
    let (mut small, mut untrusted) = (0_u64, 0_u64);
    let mut unknown = 0_u64;
    let mut keys = Vec::new();
    for row in &measured.rows {
        let share = row.share.map_or(0.0, |share| share.value);
        if share < options.least_share {
            small += 1;
            continue;
        }
        // A row without windows deserves no trust.
        let trust = row.trust.unwrap_or(Trust::Unreliable);
        if measured.has_windows && trust > options.least_trust {
            untrusted += 1;
            continue;
        }
        let says_nothing = |known: &&MetricValue| match known {
            MetricValue::Windows(figure, _) => columns::says_nothing(figure),
            MetricValue::Sampled(_) => false,
        };
        unknown += row.figures.iter().filter(says_nothing).count() as u64;
        let (mut cells, mut notes) = (Vec::new(), Vec::new());
        columns::push(&measured, row, options, &mut cells, &mut notes);
        rows.push_names(input, &labels, row.key, &mut cells);
        table.push_noted(None, cells, notes)?;
        keys.push(rows.innermost(row.key));
    }
    table.sort_by(0, Direction::Descending)?;
    left_out(&mut table.facts, small, untrusted, options);
    if options.for_people && unknown > 0 {
        table.facts.add(
            Severity::Info,
            "unknown_values",
            format!(
                "{unknown} values from fewer than 10 bursts, whose intervals reach 0, are not shown; CSV and JSON have them"
            ),
            unknown,
        );
    }
    columns::tell_few(&mut table);
    let ranking = options.ranking.or_else(|| measure::ranking(input.profile));
    let shown: Vec<usize> = ranking.into_iter().collect();
    let of_profile = profile_facts(input.profile, input.names, &shown);
    table.facts.append(of_profile);
    tell_trust(&mut table.facts, windowed, &measured, options);
    tell_drift(&mut table.facts, input, &measured, &rows);
    table.facts.append(measured.facts);
    Ok((table, keys))
}

/// Whether there are windows, or were some before a filter.
fn had_some(windows: &CollectedWindows) -> bool {
    !windows.is_empty() || windows.facts().filtered > 0
}

/// The rows of a profile, by windows where it has some.
fn measure(
    input: &WindowInput<'_>,
    options: &WindowOptions<'_>,
    rows: &Rows,
) -> Result<Measured, DisplayError> {
    match input.windows.filter(|windows| had_some(windows)) {
        Some(windows) => Ok(measure::measure(&input.report, windows, options, rows)),
        None => sampled::measure(input, options, rows),
    }
}

/// The share of rows named by a fact about drift that is expected to be there by chance.
const DRIFT: f64 = 0.01;
/// The number of rows that the fact names in text.
const NAMED: usize = 3;

/// Adds the fact that names rows whose values depend on the windows' length: such values are not of the function alone.
fn tell_drift(facts: &mut Facts, input: &Input<'_>, measured: &Measured, rows: &Rows) {
    for (place, metric) in measured.metrics.iter().enumerate() {
        let probabilities: Vec<f64> = measured
            .rows
            .iter()
            .map(|row| match &row.figures[place] {
                MetricValue::Windows(_, Some(drift)) => drift.probability,
                _ => f64::NAN,
            })
            .collect();
        let found = adjusted(&probabilities).into_iter().zip(&measured.rows);
        let mut found: Vec<&MeasuredRow> = found
            .filter(|(adjusted, _)| *adjusted <= DRIFT)
            .map(|(_, row)| row)
            .collect();
        if found.is_empty() {
            continue;
        }
        let share = |row: &MeasuredRow| row.share.map_or(0.0, |share| share.value);
        found.sort_by(|one, other| share(other).total_cmp(&share(one)));
        let names: Vec<String> = found.iter().map(|row| rows.name(input, row.key)).collect();
        let more = match names.len().checked_sub(NAMED) {
            None | Some(0) => String::new(),
            Some(more) => format!(" and {more} more"),
        };
        facts.add(
            Severity::Warning,
            "drift",
            format!(
                "{} is not the same in shorter and in longer windows, so that neither may be right: {}{more}",
                metric.title,
                names[..names.len().min(NAMED)].join(", ")
            ),
            json!({"metric": metric.id, "rows": names}),
        );
    }
}

/// Adds the fact that states the share of time in rows of each trust, and other rows to choose if little can be trusted.
fn tell_trust(
    facts: &mut Facts,
    input: &WindowInput<'_>,
    measured: &Measured,
    options: &WindowOptions<'_>,
) {
    let mut shares = TrustShares::default();
    for row in &measured.rows {
        shares.add(row.trust, row.share.map_or(0.0, |share| share.value));
    }
    if !measured.has_windows || shares.sum() == 0.0 {
        return;
    }
    let TrustShares {
        high,
        low,
        unreliable,
        none,
    } = shares;
    let proposals = match unreliable + none < 0.5 {
        true => Vec::new(),
        false => proposals(input, options, shares),
    };
    let is_of_task = options.by.is_of_task();
    let hint = match proposals.as_slice() {
        _ if is_of_task || unreliable + none < 0.5 => String::new(),
        [] => ". Most is in rows that run shorter than windows; by thread and by process every window is kept".to_owned(),
        proposals => {
            let list: Vec<String> = proposals
                .iter()
                .map(|(by, of)| {
                    format!("by {by}, {:.1}% is in rows of high trust, {:.1}% low", 100.0 * of.high, 100.0 * of.low)
                })
                .collect();
            format!(
                ". Most is in rows that run shorter than windows: {}; by thread and by process every window is kept",
                list.join(", ")
            )
        }
    };
    let proposed: Vec<_> = proposals
        .iter()
        .map(|(by, of)| json!({"by": by, "high": of.high, "low": of.low}))
        .collect();
    facts.add(
        Severity::Info,
        "trust",
        format!(
            "trust is high for {:.1}% of the time, low for {:.1}%, unreliable for {:.1}%; {:.1}% is in rows without windows{hint}",
            100.0 * high,
            100.0 * low,
            100.0 * unreliable,
            100.0 * none
        ),
        json!({"high": high, "low": low, "unreliable": unreliable, "none": none, "proposals": proposed}),
    );
    if !hint.is_empty() {
        let proposed = proposals.iter().map(|(by, _)| *by);
        for by in proposed.chain(["thread", "process"]) {
            facts.propose(Remedy::ShowBy(by.to_owned()));
        }
    }
}

/// The additional share of time that other rows must have in high or low trust to be proposed.
const WORTH_PROPOSING: f64 = 0.1;

/// Returns other rows in which more of the time can be trusted, by their names, the best first.
fn proposals(
    input: &WindowInput<'_>,
    options: &WindowOptions<'_>,
    now: TrustShares,
) -> Vec<(&'static str, TrustShares)> {
    let Some(windows) = input.windows else {
        return Vec::new();
    };
    let input = &input.report;
    let others = [("module", WindowRows::Module), ("path", WindowRows::Path)];
    let mut found: Vec<(&str, TrustShares)> = others
        .into_iter()
        .filter(|(_, by)| *by != options.by)
        .filter_map(|(name, by)| {
            let rows = Rows::new(input, by).ok()?;
            Some((name, measure::trust_shares(input, windows, options, &rows)))
        })
        .filter(|(_, of)| of.trusted() > now.trusted() + WORTH_PROPOSING)
        .collect();
    found.sort_by(|(_, one), (_, other)| other.trusted().total_cmp(&one.trusted()));
    found
}

fn left_out(facts: &mut Facts, small: u64, untrusted: u64, options: &WindowOptions<'_>) {
    if small > 0 {
        let share = 100.0 * options.least_share;
        facts.add(
            Severity::Info,
            "rows_below_share",
            format!("{small} rows with less than {share}% of the time are left out"),
            small,
        );
    }
    if untrusted > 0 {
        let trust = options.least_trust.name();
        facts.add(
            Severity::Info,
            "rows_below_trust",
            format!("{untrusted} rows that deserve less than {trust} trust are left out"),
            untrusted,
        );
    }
}
