//! The fields of a function's row, and the keys that rows are sorted by.

use super::super::render::{push_right, push_timestamp, shows_ticks};
use super::{Row, cpus, estimates, push_duration, push_number};
use dioptra_calls::Times;
use dioptra_tables::{Cell, Column, ColumnKind, Unit};
use std::cmp::Ordering;

/// The averages that `avg`, `min` and `max` stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Average {
    None,
    Total,
    Self_,
}

impl Average {
    pub fn of(total: bool, self_time: bool) -> Average {
        match (total, self_time) {
            (true, _) => Average::Total,
            (_, true) => Average::Self_,
            _ => Average::None,
        }
    }
}

/// A statistic of single calls' times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Sum,
    Average,
    Shortest,
    Longest,
    Deviation,
    ShortestAt,
    LongestAt,
}

/// A column of a function's row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Total(Of),
    Self_(Of),
    Calls,
    Size,
    /// The number of CPUs on which the function ran.
    CpuCount,
    CpuMask,
    CpuList,
}

/// The name, field, heading and id of each column.
pub const FIELDS: [(&str, Field, &str, &str); 19] = [
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

    pub fn parse(text: Option<&str>, average: Average) -> anyhow::Result<Vec<Field>> {
        let known = FIELDS.iter().map(|(name, field, ..)| (*name, *field));
        crate::commands::trace::fields::parse(text, &Field::usual(average), known)
    }

    fn known(self) -> &'static (&'static str, Field, &'static str, &'static str) {
        let known = FIELDS.iter().find(|(_, field, ..)| *field == self);
        known.unwrap_or(&FIELDS[0])
    }

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

    pub fn column(self) -> Column {
        let (_, _, heading, id) = self.known();
        let (kind, unit) = match self {
            Field::Calls | Field::CpuCount => (ColumnKind::Count, Unit::None),
            Field::CpuMask | Field::CpuList => (ColumnKind::Name, Unit::None),
            Field::Size => (ColumnKind::Count, Unit::Bytes),
            field if field.is_ratio() => (ColumnKind::Ratio, Unit::Percent),
            _ if shows_ticks() => (ColumnKind::Time, Unit::Named("ticks".to_owned())),
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
        let (sum, of, single) = match self {
            Field::Calls => return Cell::Count(times.calls),
            Field::Size => return row.size.map_or(Cell::Empty, Cell::Count),
            Field::CpuCount | Field::CpuMask | Field::CpuList if times.cpus.is_empty() => {
                return Cell::Empty;
            }
            Field::CpuCount => return Cell::Count(times.cpus.len() as u64),
            Field::CpuMask => return cpus::mask(&times.cpus).map_or(Cell::Empty, Cell::name),
            Field::CpuList => return Cell::name(cpus::list(&times.cpus)),
            Field::Total(of) => (times.total, of, &times.totals),
            Field::Self_(of) => (times.self_time, of, &times.selves),
        };
        match of {
            Of::Sum => Cell::Count(sum),
            Of::Deviation => relative_deviation(single).map_or(Cell::Empty, Cell::real),
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

    pub fn push_text(self, row: &Row, out: &mut Vec<u8>) {
        let is_time = self.is_time();
        let (at, width) = (self.is_moment(), self.width());
        match self.cell(row) {
            Cell::Count(time) if at => push_timestamp(out, time, width),
            Cell::Count(time) if is_time => push_duration(out, time),
            Cell::Count(count) => push_number(out, count, 10),
            Cell::Name(text) => push_right(out, &text, 10),
            Cell::Real { value, .. } => {
                out.extend_from_slice(format!("{value:>9.2}%").as_bytes());
            }
            _ => push_right(out, "-", width),
        }
    }

    /// Returns whether the field is a moment in time.
    pub fn is_moment(self) -> bool {
        matches!(
            self,
            Field::Total(Of::ShortestAt | Of::LongestAt)
                | Field::Self_(Of::ShortestAt | Of::LongestAt)
        )
    }

    /// Returns the width of the field in columns.
    pub fn width(self) -> usize {
        if self.is_moment() { 18 } else { 10 }
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
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Field(Field),
    Function,
}

impl Key {
    /// Returns whether the key is about CPUs.
    pub fn is_of_cpus(self) -> bool {
        matches!(self, Key::Field(field) if field.is_of_cpus())
    }

    /// Returns the keys that `text` asks for. The default is the first of the default fields, shown or not.
    pub fn parse(text: Option<&str>, average: Average) -> Result<Vec<Key>, String> {
        let Some(text) = text else {
            return Ok(vec![Key::Field(Field::usual(average)[0])]);
        };
        let key = |word: &str| {
            let field = |of| match average {
                Average::Self_ => Field::Self_(of),
                _ => Field::Total(of),
            };
            Ok(Key::Field(match (word, average) {
                ("func", _) => return Ok(Key::Function),
                ("avg" | "min" | "max", Average::None) => {
                    return Err(format!(
                        "-s {word}: goes with --avg-total or --avg-self; else write total-{word} or self-{word}"
                    ));
                }
                ("avg", _) => field(Of::Average),
                ("min", _) => field(Of::Shortest),
                ("max", _) => field(Of::Longest),
                _ => match FIELDS.iter().find(|(name, ..)| *name == word) {
                    Some((_, field, ..)) => *field,
                    None => {
                        let names: Vec<&str> = FIELDS.iter().map(|(name, ..)| *name).collect();
                        return Err(format!(
                            "-s: there is no key `{word}`; keys are {} and func",
                            names.join(", ")
                        ));
                    }
                },
            }))
        };
        text.split(',').map(|word| key(word.trim())).collect()
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
