//! The fields of a function's row, and the keys that rows are sorted by.

use crate::cpus;
use crate::rows::{Row, estimates};
use dioptra_calls::{StatisticsOptions, Times};
use dioptra_tables::{Cell, Column, ColumnKind, Unit};
use std::cmp::Ordering;

/// The averages that `avg`, `min` and `max` stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// None.
    None,
    /// The fields of total times.
    Total,
    /// The fields of self times.
    Self_,
}

impl Average {
    /// Returns the averages that two switches ask for.
    pub fn of(total: bool, self_time: bool) -> Average {
        match (total, self_time) {
            (true, _) => Average::Total,
            (_, true) => Average::Self_,
            _ => Average::None,
        }
    }
}

/// A statistic of single calls' times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The sum over all calls.
    Sum,
    /// The mean.
    Average,
    /// The shortest time.
    Shortest,
    /// The longest time.
    Longest,
    /// The standard deviation, in percent of the mean.
    Deviation,
    /// The time that this percentage of the calls does not exceed.
    Percentile(u8),
    /// The time at which the shortest call began.
    ShortestAt,
    /// The time at which the longest call began.
    LongestAt,
}

/// A column of a function's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The time within calls.
    Total(Of),
    /// The time within calls and not within recorded calls below.
    Self_(Of),
    /// The number of calls.
    Calls,
    /// The function's size in bytes.
    Size,
    /// The number of CPUs on which the function ran.
    CpuCount,
    /// The CPUs on which the function ran, as a mask.
    CpuMask,
    /// The CPUs on which the function ran, as a list.
    CpuList,
}

/// The name, field, heading and id of each column.
pub const FIELDS: [(&str, Field, &str, &str); 25] = [
    ("total", Field::Total(Of::Sum), "Total time", "total"),
    (
        "total-avg",
        Field::Total(Of::Average),
        "Total avg",
        "total_avg",
    ),
    (
        "total-min",
        Field::Total(Of::Shortest),
        "Total min",
        "total_min",
    ),
    (
        "total-max",
        Field::Total(Of::Longest),
        "Total max",
        "total_max",
    ),
    (
        "total-stdv",
        Field::Total(Of::Deviation),
        "Total stdv",
        "total_stdv",
    ),
    (
        "total-p50",
        Field::Total(Of::Percentile(50)),
        "Total p50",
        "total_p50",
    ),
    (
        "total-p90",
        Field::Total(Of::Percentile(90)),
        "Total p90",
        "total_p90",
    ),
    (
        "total-p99",
        Field::Total(Of::Percentile(99)),
        "Total p99",
        "total_p99",
    ),
    ("self", Field::Self_(Of::Sum), "Self time", "self"),
    (
        "self-avg",
        Field::Self_(Of::Average),
        "Self avg",
        "self_avg",
    ),
    (
        "self-min",
        Field::Self_(Of::Shortest),
        "Self min",
        "self_min",
    ),
    (
        "self-max",
        Field::Self_(Of::Longest),
        "Self max",
        "self_max",
    ),
    (
        "self-stdv",
        Field::Self_(Of::Deviation),
        "Self stdv",
        "self_stdv",
    ),
    (
        "self-p50",
        Field::Self_(Of::Percentile(50)),
        "Self p50",
        "self_p50",
    ),
    (
        "self-p90",
        Field::Self_(Of::Percentile(90)),
        "Self p90",
        "self_p90",
    ),
    (
        "self-p99",
        Field::Self_(Of::Percentile(99)),
        "Self p99",
        "self_p99",
    ),
    ("call", Field::Calls, "Calls", "calls"),
    ("size", Field::Size, "Size", "size"),
    ("cpu-count", Field::CpuCount, "CPU count", "cpu_count"),
    ("cpu-mask", Field::CpuMask, "CPU mask", "cpu_mask"),
    ("cpu-list", Field::CpuList, "CPU list", "cpu_list"),
    (
        "total-min-ts",
        Field::Total(Of::ShortestAt),
        "Total min ts",
        "total_min_ts",
    ),
    (
        "total-max-ts",
        Field::Total(Of::LongestAt),
        "Total max ts",
        "total_max_ts",
    ),
    (
        "self-min-ts",
        Field::Self_(Of::ShortestAt),
        "Self min ts",
        "self_min_ts",
    ),
    (
        "self-max-ts",
        Field::Self_(Of::LongestAt),
        "Self max ts",
        "self_max_ts",
    ),
];

impl Field {
    /// Returns the default fields.
    pub fn usual(average: Average) -> [Field; 3] {
        match average {
            Average::None => [Field::Total(Of::Sum), Field::Self_(Of::Sum), Field::Calls],
            Average::Total => [Of::Average, Of::Shortest, Of::Longest].map(Field::Total),
            Average::Self_ => [Of::Average, Of::Shortest, Of::Longest].map(Field::Self_),
        }
    }

    fn known(self) -> &'static (&'static str, Field, &'static str, &'static str) {
        let known = FIELDS.iter().find(|(_, field, ..)| *field == self);
        known.unwrap_or(&FIELDS[0])
    }

    /// Returns the column's heading.
    pub fn heading(self) -> &'static str {
        self.known().2
    }

    /// Returns whether the field is a sum over calls, which sampling scales.
    pub fn is_sum(self) -> bool {
        matches!(
            self,
            Field::Total(Of::Sum) | Field::Self_(Of::Sum) | Field::Calls
        )
    }

    /// Returns the column. `ticks` says that durations are in ticks of unknown length.
    pub fn column(self, ticks: bool) -> Column {
        let (_, _, heading, id) = self.known();
        let (kind, unit) = match self {
            Field::Calls | Field::CpuCount => (ColumnKind::Count, Unit::None),
            Field::CpuMask | Field::CpuList => (ColumnKind::Name, Unit::None),
            Field::Size => (ColumnKind::Count, Unit::Bytes),
            field if field.is_ratio() => (ColumnKind::Ratio, Unit::Percent),
            _ if ticks => (ColumnKind::Time, Unit::Named("ticks".to_owned())),
            _ => (ColumnKind::Time, Unit::Nanoseconds),
        };
        Column::new(*id, *heading, kind, unit)
    }

    /// Returns the value as a table holds it: nanoseconds, a count, or percent.
    pub fn cell(self, row: &Row) -> Cell<'static> {
        if let Some([total, self_time, calls]) = estimates(row)
            && self.is_sum()
        {
            let (value, _) = match self {
                Field::Total(_) => total,
                Field::Self_(_) => self_time,
                _ => calls,
            };
            // Calls and nanoseconds are whole numbers; estimates are rounded.
            return Cell::Count(value.round() as u64);
        }
        let times = &row.times;
        let distribution = times.distribution.as_deref();
        let (sum, of, single, durations) = match self {
            Field::Calls => return Cell::Count(times.calls),
            Field::Size => return row.size.map_or(Cell::Empty, Cell::Count),
            Field::CpuCount | Field::CpuMask | Field::CpuList if times.cpus.is_empty() => {
                return Cell::Empty;
            }
            Field::CpuCount => return Cell::Count(times.cpus.len() as u64),
            Field::CpuMask => return cpus::mask(&times.cpus).map_or(Cell::Empty, Cell::name),
            Field::CpuList => return Cell::name(cpus::list(&times.cpus)),
            Field::Total(of) => {
                let durations = distribution.map(|all| &all.totals);
                (times.total, of, &times.totals, durations)
            }
            Field::Self_(of) => {
                let durations = distribution.map(|all| &all.selves);
                (times.self_time, of, &times.selves, durations)
            }
        };
        match of {
            Of::Sum => Cell::Count(sum),
            Of::Deviation => relative_deviation(single).map_or(Cell::Empty, Cell::real),
            Of::Percentile(percent) => durations
                .and_then(|durations| durations.percentile(f64::from(percent)))
                // The middle of a bucket may lie beyond the longest call.
                .map(|time| time.clamp(single.shortest.duration, single.longest.duration))
                .map_or(Cell::Empty, Cell::Count),
            _ => number(of, single).map_or(Cell::Empty, Cell::Count),
        }
    }

    /// Returns the standard error of the value, if the value is an estimate and its error is known.
    pub fn standard_error(self, row: &Row) -> Option<f64> {
        let [total, self_time, calls] = estimates(row).filter(|_| self.is_sum())?;
        let (_, standard_error) = match self {
            Field::Total(_) => total,
            Field::Self_(_) => self_time,
            _ => calls,
        };
        standard_error
    }

    /// Returns whether the field is a moment in time.
    pub fn is_moment(self) -> bool {
        matches!(
            self,
            Field::Total(Of::ShortestAt | Of::LongestAt)
                | Field::Self_(Of::ShortestAt | Of::LongestAt)
        )
    }

    /// Returns whether the field is a share of another number.
    pub fn is_ratio(self) -> bool {
        matches!(
            self,
            Field::Total(Of::Deviation) | Field::Self_(Of::Deviation)
        )
    }

    /// Returns whether the field is a time.
    pub fn is_time(self) -> bool {
        matches!(self, Field::Total(_) | Field::Self_(_)) && !self.is_ratio()
    }

    /// Returns whether the field is about CPUs, which are collected only on request.
    pub fn is_of_cpus(self) -> bool {
        matches!(self, Field::CpuCount | Field::CpuMask | Field::CpuList)
    }

    /// Returns whether the field is a percentile, which needs the distribution of durations.
    pub fn is_percentile(self) -> bool {
        let (Field::Total(of) | Field::Self_(of)) = self else {
            return false;
        };
        matches!(of, Of::Percentile(_))
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        if let Field::CpuMask | Field::CpuList = self {
            // The sets are compared as numbers: the highest CPU decides.
            return a.times.cpus.iter().rev().cmp(b.times.cpus.iter().rev());
        }
        self.cell(a).compare(&self.cell(b), 1.0)
    }
}

fn number(of: Of, times: &Times) -> Option<u64> {
    let mean = times.mean()?;
    Some(match of {
        Of::Shortest => times.shortest.duration,
        Of::Longest => times.longest.duration,
        Of::ShortestAt => times.shortest.began,
        Of::LongestAt => times.longest.began,
        _ => mean,
    })
}

/// Returns the standard deviation in percent of the mean.
fn relative_deviation(times: &Times) -> Option<f64> {
    let deviation = times.standard_deviation()?;
    let mean = times.sum as f64 / times.count as f64;
    Some(if mean > 0.0 {
        100.0 * deviation / mean
    } else {
        0.0
    })
}

/// A key that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A field, the largest value first.
    Field(Field),
    /// The function's name.
    Function,
}

/// Returns the parts of statistics that fields and keys need.
pub fn needed_statistics(fields: &[Field], keys: &[Key]) -> StatisticsOptions {
    let keys = keys.iter().filter_map(|key| match key {
        Key::Field(field) => Some(field),
        Key::Function => None,
    });
    let mut all = fields.iter().chain(keys);
    StatisticsOptions {
        cpus: all.clone().any(|field| field.is_of_cpus()),
        distributions: all.any(|field| field.is_percentile()),
    }
}

/// Sorts by the first key, then by the next: numbers from the largest, names in ascending order.
pub fn sort(rows: &mut [Row], keys: &[Key]) {
    rows.sort_by(|a, b| {
        let by = keys.iter().map(|key| match key {
            Key::Field(field) => field.compare(b, a),
            Key::Function => a.name.cmp(&b.name),
        });
        let by_name = || {
            a.name
                .cmp(&b.name)
                .then(a.times.function.cmp(&b.times.function))
        };
        by.fold(Ordering::Equal, Ordering::then).then_with(by_name)
    });
}
