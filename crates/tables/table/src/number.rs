//! Numbers as people read them. Programs get full precision from CSV and JSON.

use std::cmp::Ordering;
use std::fmt::Write;

use crate::escape::push_escaped;
use crate::{Cell, Column, Unit};

/// Appends one cell as text shows it. An undefined number is `-`; an empty cell is nothing.
pub(crate) fn push_cell(out: &mut String, cell: &Cell<'_>, column: &Column) {
    match cell {
        Cell::Empty => {}
        Cell::Name(name) => push_escaped(out, name),
        Cell::Address(address) => push_formatted(out, format_args!("{address:#x}")),
        Cell::Count(nanoseconds) if column.unit == Unit::Nanoseconds => {
            push_nanoseconds(out, *nanoseconds)
        }
        Cell::Count(count) => push_formatted(out, format_args!("{count}")),
        Cell::Difference {
            minuend,
            subtrahend,
        } => {
            let sign = match minuend.cmp(subtrahend) {
                Ordering::Less => "-",
                Ordering::Equal => "",
                Ordering::Greater => "+",
            };
            out.push_str(sign);
            let size = minuend.abs_diff(*subtrahend);
            if column.unit == Unit::Nanoseconds {
                push_nanoseconds(out, size);
            } else {
                push_formatted(out, format_args!("{size}"));
            }
        }
        Cell::Ratio { .. } | Cell::Real { .. } => match cell.value(column.unit.scale()) {
            None => out.push('-'),
            Some(value) => {
                push_real(out, value, &column.unit);
                if let Some(error) = cell.standard_error() {
                    push_error(out, error, column);
                }
            }
        },
    }
}

/// Appends one standard error of a value.
pub(crate) fn push_error(out: &mut String, error: f64, column: &Column) {
    out.push_str(" ±");
    match column.unit {
        // Digits after the point say nothing about whole numbers.
        Unit::Events | Unit::Samples | Unit::Bytes if (10.0..LARGE).contains(&error) => {
            push_formatted(out, format_args!("{error:.0}"));
        }
        _ => push_real(out, error, &column.unit),
    }
}

fn push_formatted(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
}

/// The size from which digits before the point mean nothing more: f64 holds no more than 15 exactly.
const LARGE: f64 = 1e15;

/// Appends a number that is no integer, in its unit. Percentages have two decimals, rounded as C's `%.2f` rounds them.
fn push_real(out: &mut String, value: f64, unit: &Unit) {
    let size = value.abs();
    match unit {
        Unit::Percent if size < LARGE => push_formatted(out, format_args!("{value:.2}%")),
        Unit::Percent => push_formatted(out, format_args!("{value:.2e}%")),
        Unit::Nanoseconds if size < 999.95 => push_formatted(out, format_args!("{value:.1} ns")),
        Unit::Nanoseconds if size < 1e18 => {
            if value < 0.0 {
                out.push('-');
            }
            push_nanoseconds(out, size.round() as u64);
        }
        Unit::Nanoseconds => push_formatted(out, format_args!("{:.3e} s", value / 1e9)),
        // Three decimals would show only zeros.
        _ if size >= LARGE || (size > 0.0 && size < 0.0005) => {
            push_formatted(out, format_args!("{value:.2e}"))
        }
        _ => push_formatted(out, format_args!("{value:.3}")),
    }
}

/// Appends a duration in the largest of ns, us, ms and s that leaves a digit before the point, with three decimals,
/// rounded half up in integers.
fn push_nanoseconds(out: &mut String, nanoseconds: u64) {
    if nanoseconds < 1000 {
        return push_formatted(out, format_args!("{nanoseconds} ns"));
    }
    let mut thousandth = 1; // of the unit, in nanoseconds
    for unit in ["us", "ms", "s"] {
        // The remainder decides, so that nothing is added to a number near the type's end.
        let rounded = nanoseconds / thousandth
            + u64::from(nanoseconds % thousandth * 2 >= thousandth && thousandth > 1);
        if rounded < 1_000_000 || unit == "s" {
            return push_formatted(
                out,
                format_args!("{}.{:03} {unit}", rounded / 1000, rounded % 1000),
            );
        }
        thousandth *= 1000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnKind;

    fn shown(cell: Cell<'_>, unit: Unit) -> String {
        let mut out = String::new();
        push_cell(
            &mut out,
            &cell,
            &Column::new("x", "x", ColumnKind::Count, unit),
        );
        out
    }

    #[test]
    fn percents_are_those_of_printf() {
        // Expected: what `printf("%.2f%%", 100.0 * n / total)` prints in C, ties to even on the exact binary value.
        for (numerator, denominator, expected) in [
            (1, 3, "33.33%"),
            (2, 3, "66.67%"),
            (1, 800, "0.12%"),
            (3, 800, "0.38%"),
            (1, 20_000, "0.01%"),
            (201, 20_000, "1.00%"),
            (5, 5, "100.00%"),
            (0, 5, "0.00%"),
            (u64::MAX, u64::MAX, "100.00%"),
        ] {
            assert_eq!(
                shown(Cell::ratio(numerator, denominator), Unit::Percent),
                expected
            );
        }
        assert_eq!(shown(Cell::ratio(1, 0), Unit::Percent), "-");
    }

    #[test]
    fn other_numbers() {
        assert_eq!(shown(Cell::ratio(3, 2), Unit::None), "1.500");
        assert_eq!(shown(Cell::ratio(3, 2000), Unit::PerThousand), "1.500");
        assert_eq!(shown(Cell::real(1.25e-7), Unit::None), "1.25e-7");
        assert_eq!(shown(Cell::real(1e300), Unit::Bytes), "1.00e300");
        assert_eq!(shown(Cell::real(f64::NAN), Unit::None), "-");
        assert_eq!(shown(Cell::estimate(1.5, 0.01), Unit::None), "1.500 ±0.010");
        assert_eq!(
            shown(Cell::estimate(12.5, 0.25), Unit::Percent),
            "12.50% ±0.25%"
        );
        assert_eq!(
            shown(Cell::Count(u64::MAX), Unit::Events),
            "18446744073709551615"
        );
        assert_eq!(shown(Cell::Address(0x401a3f), Unit::None), "0x401a3f");
        assert_eq!(shown(Cell::Empty, Unit::None), "");
    }

    #[test]
    fn durations() {
        for (nanoseconds, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.000 us"),
            (999_999, "999.999 us"),
            (1_000_000, "1.000 ms"),
            (1_234_500, "1.235 ms"),
            (999_999_499, "999.999 ms"),
            (999_999_500, "1.000 s"),
            (61_000_000_000, "61.000 s"),
            (u64::MAX, "18446744073.710 s"),
        ] {
            assert_eq!(shown(Cell::Count(nanoseconds), Unit::Nanoseconds), expected);
        }
        assert_eq!(shown(Cell::real(-2500.0), Unit::Nanoseconds), "-2.500 us");
        assert_eq!(shown(Cell::real(12.34), Unit::Nanoseconds), "12.3 ns");
        assert_eq!(shown(Cell::real(1e30), Unit::Nanoseconds), "1.000e21 s");
    }
}
