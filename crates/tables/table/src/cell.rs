//! One value of a table, kept exact until it is printed.

use std::borrow::Cow;
use std::cmp::Ordering;

/// One value of a table. A name is borrowed where its text exists already, since tables keep their own copies.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// Any text: a function, a path, a command. It may hold every character; renderings escape the hostile ones.
    Name(Cow<'a, str>),
    /// An exact sum, in the column's unit (events, nanoseconds, bytes, …).
    Count(u64),
    /// A quotient of two exact sums. Renderings divide it only when they print it, and then multiply by the column's
    /// unit (see [`crate::Unit::scale`]).
    Ratio {
        /// The dividend: the sum that is compared.
        numerator: u64,
        /// The divisor: the sum that the numerator is compared with. Zero makes the ratio undefined, which every
        /// rendering shows as no value.
        denominator: u64,
    },
    /// The exact difference of two sums, shown with its sign.
    Difference {
        /// The sum from which the subtrahend is taken away: the later one of two profiles.
        minuend: u64,
        /// The sum that is taken away: the earlier one of two profiles.
        subtrahend: u64,
    },
    /// An address, absolute or relative to its module.
    Address(u64),
    /// An estimate or any other number that is no sum, in the column's unit.
    Real {
        /// The number itself; one that is not finite is undefined, which every rendering shows as no value.
        value: f64,
        /// One standard error of the value, in the same unit, if it is known.
        standard_error: Option<f64>,
    },
    /// No value: the row has nothing to say in this column.
    Empty,
}

impl<'a> Cell<'a> {
    /// Makes a name cell.
    pub fn name(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
        Cell::Name(text.into())
    }

    /// Makes a ratio cell.
    pub fn ratio(numerator: u64, denominator: u64) -> Cell<'a> {
        Cell::Ratio {
            numerator,
            denominator,
        }
    }

    /// Makes a number without a known error.
    pub fn real(value: f64) -> Cell<'a> {
        Cell::Real {
            value,
            standard_error: None,
        }
    }

    /// Makes a number with its standard error.
    pub fn estimate(value: f64, standard_error: f64) -> Cell<'a> {
        Cell::Real {
            value,
            standard_error: Some(standard_error),
        }
    }

    /// Returns the cell as a floating point number in its column's unit, where `scale` is the column's
    /// [`crate::Unit::scale`]. `None` stands for names, addresses, empty cells and undefined numbers.
    ///
    /// A ratio is `(scale × numerator) ÷ denominator` in this order, as C programs compute a percentage, so that the
    /// printed digits agree with theirs.
    pub fn value(&self, scale: f64) -> Option<f64> {
        let value = match *self {
            Cell::Count(count) => count as f64,
            Cell::Ratio {
                numerator,
                denominator,
            } => {
                if denominator == 0 {
                    return None;
                }
                scale * numerator as f64 / denominator as f64
            }
            Cell::Difference { .. } => self.difference().unwrap_or(0) as f64,
            Cell::Real { value, .. } => value,
            Cell::Name(_) | Cell::Address(_) | Cell::Empty => return None,
        };
        value.is_finite().then_some(value)
    }

    /// Returns the exact difference, if the cell is one.
    pub(crate) fn difference(&self) -> Option<i128> {
        match *self {
            Cell::Difference {
                minuend,
                subtrahend,
            } => Some(i128::from(minuend) - i128::from(subtrahend)),
            _ => None,
        }
    }

    /// Returns the standard error, if the cell has a usable one (finite, not negative).
    pub fn standard_error(&self) -> Option<f64> {
        match *self {
            Cell::Real {
                value,
                standard_error: Some(error),
            } if value.is_finite() && error.is_finite() && error >= 0.0 => Some(error),
            _ => None,
        }
    }

    /// Returns true if the cell shows nothing: it is empty or an undefined number.
    pub fn is_undefined(&self) -> bool {
        match self {
            Cell::Empty => true,
            Cell::Ratio { denominator, .. } => *denominator == 0,
            Cell::Real { value, .. } => !value.is_finite(),
            Cell::Name(_) | Cell::Count(_) | Cell::Address(_) | Cell::Difference { .. } => false,
        }
    }

    /// Compares two cells in a total order. Within one kind the order is the natural one: ratios are compared exactly,
    /// without dividing, and names by their bytes. Undefined cells come before everything else. `scale` is the column's
    /// [`crate::Unit::scale`], needed only where a column mixes ratios with other numbers.
    pub fn compare(&self, other: &Cell<'_>, scale: f64) -> Ordering {
        use Cell::{Address, Count, Name, Ratio};
        match (self.is_undefined(), other.is_undefined()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        match (self, other) {
            (Name(a), Name(b)) => a.cmp(b),
            (Count(a), Count(b)) | (Address(a), Address(b)) => a.cmp(b),
            (
                Ratio {
                    numerator: a,
                    denominator: b,
                },
                Ratio {
                    numerator: c,
                    denominator: d,
                },
            ) => (u128::from(*a) * u128::from(*d)).cmp(&(u128::from(*c) * u128::from(*b))),
            (Cell::Difference { .. }, Cell::Difference { .. }) => {
                self.difference().cmp(&other.difference())
            }
            _ => self.rank().cmp(&other.rank()).then_with(|| {
                let value = |cell: &Cell<'_>| cell.value(scale).unwrap_or(0.0);
                value(self).total_cmp(&value(other))
            }),
        }
    }

    /// Returns the number of the cell's group of kinds; cells of one group can be compared with each other.
    fn rank(&self) -> u8 {
        match self {
            Cell::Empty => 0,
            Cell::Count(_) | Cell::Ratio { .. } | Cell::Real { .. } | Cell::Difference { .. } => 1,
            Cell::Address(_) => 2,
            Cell::Name(_) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_exactly_where_floats_cannot() {
        // Both quotients are the same f64, yet the first is larger.
        let (a, b) = (
            Cell::ratio(u64::MAX, u64::MAX - 1),
            Cell::ratio(u64::MAX - 1, u64::MAX - 1),
        );
        assert_eq!(a.value(1.0), b.value(1.0));
        assert_eq!(a.compare(&b, 1.0), Ordering::Greater);
    }

    #[test]
    fn undefined_numbers_have_no_value_and_sort_first() {
        for cell in [
            Cell::ratio(5, 0),
            Cell::real(f64::NAN),
            Cell::real(f64::INFINITY),
            Cell::Empty,
        ] {
            assert_eq!(cell.value(100.0), None);
            assert!(cell.is_undefined());
            assert_eq!(cell.compare(&Cell::Count(0), 1.0), Ordering::Less);
            assert_eq!(Cell::Count(0).compare(&cell, 1.0), Ordering::Greater);
        }
    }

    #[test]
    fn a_bad_standard_error_is_none() {
        assert_eq!(Cell::estimate(1.0, f64::NAN).standard_error(), None);
        assert_eq!(Cell::estimate(1.0, -1.0).standard_error(), None);
        assert_eq!(Cell::estimate(f64::NAN, 1.0).standard_error(), None);
        assert_eq!(Cell::estimate(1.0, 0.5).standard_error(), Some(0.5));
    }
}
