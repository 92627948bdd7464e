//! The cells of one column, in as few bytes as their kind needs.

use super::names::Pool;
use crate::{Cell, ColumnKind};
use std::borrow::Cow;

/// The cells of one column, by row.
#[derive(Debug, Clone, Default)]
pub(super) enum Values {
    /// No cell has a value.
    #[default]
    Empty,
    /// The number of each name, [`NAMELESS`] of empty cells.
    Names(Vec<u32>),
    Counts(Words),
    Addresses(Words),
    /// Ratios that share one denominator.
    Ratios {
        numerators: Words,
        denominator: u64,
    },
    /// Numbers without errors of their own; [`NOTHING`] is an empty cell.
    Reals(Vec<f64>),
    /// Cells that fit none of the other lists.
    Mixed(Vec<Stored>),
}

/// The number that stands for an empty cell among names.
const NAMELESS: u32 = u32::MAX;

/// The bits of an empty cell among reals: a NaN that no computation gives. A real that has these bits is stored as
/// another NaN.
const NOTHING: u64 = 0x7ff8_5f4e_4f4e_4521;

/// Numbers, in half of their size while they are small. The largest number of each size stands for empty cells.
#[derive(Debug, Clone)]
pub(super) enum Words {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Words {
    /// Makes `length` empty cells, with room for `room`.
    fn empty((length, room): (usize, usize)) -> Words {
        Words::Narrow(filled(u32::MAX, (length, room)))
    }

    #[inline]
    fn get(&self, row: usize) -> Option<u64> {
        match self {
            Words::Narrow(list) => Some(list[row])
                .filter(|value| *value != u32::MAX)
                .map(u64::from),
            Words::Wide(list) => Some(list[row]).filter(|value| *value != u64::MAX),
        }
    }

    /// Adds a cell; returns `false`, and adds nothing, where the cell cannot be told from an empty one.
    #[inline]
    fn push(&mut self, value: Option<u64>) -> bool {
        if value == Some(u64::MAX) {
            return false;
        }
        match self {
            Words::Narrow(list) => match value {
                None => list.push(u32::MAX),
                Some(value) if value < u32::MAX.into() => list.push(value as u32),
                _ => {
                    self.widen();
                    return self.push(value);
                }
            },
            Words::Wide(list) => list.push(value.unwrap_or(u64::MAX)),
        }
        true
    }

    #[cold]
    fn widen(&mut self) {
        if let Words::Narrow(list) = self {
            let mut wide = Vec::with_capacity(list.capacity());
            wide.extend(list.iter().map(|value| match *value {
                u32::MAX => u64::MAX,
                value => value.into(),
            }));
            *self = Words::Wide(wide);
        }
    }

    fn repeat(&mut self, row: usize) {
        match self {
            Words::Narrow(list) => list.push(list[row]),
            Words::Wide(list) => list.push(list[row]),
        }
    }
}

/// A cell of any kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stored {
    Empty,
    Name(u32),
    Count(u64),
    Address(u64),
    Ratio(u64, u64),
    Difference(u64, u64),
    Real(f64, Option<f64>),
}

impl Stored {
    fn new(cell: &Cell<'_>, names: &mut Pool) -> Stored {
        match cell {
            Cell::Empty => Stored::Empty,
            Cell::Name(name) => Stored::Name(number(name, names)),
            Cell::Count(count) => Stored::Count(*count),
            Cell::Address(address) => Stored::Address(*address),
            Cell::Ratio {
                numerator,
                denominator,
            } => Stored::Ratio(*numerator, *denominator),
            Cell::Difference {
                minuend,
                subtrahend,
            } => Stored::Difference(*minuend, *subtrahend),
            Cell::Real {
                value,
                standard_error,
            } => Stored::Real(*value, *standard_error),
        }
    }

    fn cell(self, names: &Pool) -> Cell<'_> {
        match self {
            Stored::Empty => Cell::Empty,
            Stored::Name(number) => Cell::name(names.get(number)),
            Stored::Count(count) => Cell::Count(count),
            Stored::Address(address) => Cell::Address(address),
            Stored::Ratio(numerator, denominator) => Cell::ratio(numerator, denominator),
            Stored::Difference(minuend, subtrahend) => Cell::Difference {
                minuend,
                subtrahend,
            },
            Stored::Real(value, standard_error) => Cell::Real {
                value,
                standard_error,
            },
        }
    }
}

/// Makes a list of `length` equal values, with room for `room`.
fn filled<T: Clone>(value: T, (length, room): (usize, usize)) -> Vec<T> {
    let mut list = Vec::with_capacity(room.max(length + 1));
    list.resize(length, value);
    list
}

impl Values {
    /// Adds the cell of the row after the first `length` ones; there may be `room` for more.
    #[inline]
    pub(super) fn push(&mut self, cell: &Cell<'_>, of: (usize, usize), names: &mut Pool) {
        let is_in = match (&mut *self, cell) {
            (Values::Empty, Cell::Empty) => true,
            (Values::Names(list), Cell::Name(name)) => {
                list.push(number(name, names));
                true
            }
            (Values::Names(list), Cell::Empty) => {
                list.push(NAMELESS);
                true
            }
            (Values::Counts(list), Cell::Count(count)) => list.push(Some(*count)),
            (Values::Addresses(list), Cell::Address(address)) => list.push(Some(*address)),
            (
                Values::Ratios {
                    numerators,
                    denominator: whole,
                },
                Cell::Ratio {
                    numerator,
                    denominator,
                },
            ) if whole == denominator => numerators.push(Some(*numerator)),
            (
                Values::Counts(list)
                | Values::Addresses(list)
                | Values::Ratios {
                    numerators: list, ..
                },
                Cell::Empty,
            ) => list.push(None),
            (
                Values::Reals(list),
                Cell::Real {
                    value,
                    standard_error: None,
                },
            ) => {
                list.push(real(*value));
                true
            }
            (Values::Reals(list), Cell::Empty) => {
                list.push(f64::from_bits(NOTHING));
                true
            }
            (Values::Mixed(list), cell) => {
                list.push(Stored::new(cell, names));
                true
            }
            _ => false,
        };
        if !is_in {
            self.change(cell, of, names);
        }
    }

    /// Turns the list into one into which `cell` fits, and adds the cell.
    #[cold]
    fn change(&mut self, cell: &Cell<'_>, of: (usize, usize), names: &mut Pool) {
        *self = match (&self, cell) {
            (Values::Empty, Cell::Name(_)) => Values::Names(filled(NAMELESS, of)),
            (Values::Empty, Cell::Count(count)) if *count < u64::MAX => {
                Values::Counts(Words::empty(of))
            }
            (Values::Empty, Cell::Address(address)) if *address < u64::MAX => {
                Values::Addresses(Words::empty(of))
            }
            (
                Values::Empty,
                Cell::Ratio {
                    numerator,
                    denominator,
                },
            ) if *numerator < u64::MAX => Values::Ratios {
                numerators: Words::empty(of),
                denominator: *denominator,
            },
            (
                Values::Empty,
                Cell::Real {
                    standard_error: None,
                    ..
                },
            ) => Values::Reals(filled(f64::from_bits(NOTHING), of)),
            _ => {
                let mut mixed = filled(Stored::Empty, (0, of.1.max(of.0 + 1)));
                mixed.extend((0..of.0).map(|row| self.stored(row)));
                Values::Mixed(mixed)
            }
        };
        self.push(cell, of, names);
    }

    /// Adds a cell that equals that of an earlier row.
    pub(super) fn repeat(&mut self, row: usize) {
        match self {
            Values::Empty => {}
            Values::Names(list) => list.push(list[row]),
            Values::Counts(list)
            | Values::Addresses(list)
            | Values::Ratios {
                numerators: list, ..
            } => list.repeat(row),
            Values::Reals(list) => list.push(list[row]),
            Values::Mixed(list) => list.push(list[row]),
        }
    }

    #[inline]
    fn stored(&self, row: usize) -> Stored {
        let of =
            |value: Option<u64>, stored: fn(u64) -> Stored| value.map_or(Stored::Empty, stored);
        match self {
            Values::Empty => Stored::Empty,
            Values::Names(list) => match list[row] {
                NAMELESS => Stored::Empty,
                number => Stored::Name(number),
            },
            Values::Counts(list) => of(list.get(row), Stored::Count),
            Values::Addresses(list) => of(list.get(row), Stored::Address),
            Values::Ratios {
                numerators,
                denominator,
            } => match numerators.get(row) {
                Some(numerator) => Stored::Ratio(numerator, *denominator),
                None => Stored::Empty,
            },
            Values::Reals(list) => match list[row].to_bits() {
                NOTHING => Stored::Empty,
                _ => Stored::Real(list[row], None),
            },
            Values::Mixed(list) => list[row],
        }
    }

    #[inline]
    pub(super) fn get<'a>(&self, row: usize, names: &'a Pool) -> Cell<'a> {
        self.stored(row).cell(names)
    }

    /// Returns true if both rows have the same number of a name. Equal names may have different numbers.
    #[inline]
    pub(super) fn is_same_name(&self, one: usize, other: usize) -> bool {
        match self {
            Values::Names(list) => list[one] == list[other],
            _ => false,
        }
    }

    /// Returns numbers that are in the order of the cells of the first `length` rows. `None` where some cells have no
    /// value or are not of one kind.
    pub(super) fn sort_keys(&self, length: usize) -> Option<Vec<u64>> {
        match self {
            Values::Counts(list) => (0..length).map(|row| list.get(row)).collect(),
            Values::Ratios {
                numerators,
                denominator: 1..,
            } => (0..length).map(|row| numerators.get(row)).collect(),
            _ => None,
        }
    }

    /// Returns true if all cells are known to fit into a column without a look at each.
    pub(super) fn all_fit(&self, kind: ColumnKind) -> bool {
        let example = match self {
            Values::Empty => Cell::Empty,
            Values::Names(_) => Cell::name(""),
            Values::Counts(_) => Cell::Count(0),
            Values::Addresses(_) => Cell::Address(0),
            Values::Ratios { .. } => Cell::ratio(0, 1),
            Values::Reals(_) => Cell::real(0.0),
            Values::Mixed(_) => return false,
        };
        kind.fits(&example)
    }
}

/// Returns the number of a name. An owned text was made for its row and is seldom another row's too, so it is not
/// looked up.
#[allow(clippy::ptr_arg, reason = "whether the text is borrowed decides")]
#[inline]
fn number(name: &Cow<'_, str>, names: &mut Pool) -> u32 {
    match name {
        Cow::Borrowed(name) => names.number(name),
        Cow::Owned(name) => names.add(name),
    }
}

fn real(value: f64) -> f64 {
    if value.to_bits() == NOTHING {
        return f64::NAN;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> impl Strategy<Value = Cell<'static>> {
        let number = || {
            prop_oneof![
                0..9_u64,
                Just(u64::from(u32::MAX)),
                Just(u64::from(u32::MAX) - 1),
                Just(u64::MAX),
                any::<u64>()
            ]
        };
        prop_oneof![
            Just(Cell::Empty),
            "[ab]{0,2}".prop_map(Cell::name),
            number().prop_map(Cell::Count),
            number().prop_map(Cell::Address),
            (number(), 0..3_u64).prop_map(|(one, other)| Cell::ratio(one, other)),
            (number(), number()).prop_map(|(minuend, subtrahend)| Cell::Difference {
                minuend,
                subtrahend
            }),
            any::<f64>().prop_map(Cell::real),
            (any::<f64>(), any::<f64>()).prop_map(|(value, error)| Cell::estimate(value, error)),
        ]
    }

    /// Mostly of one kind, as columns are.
    fn cells() -> impl Strategy<Value = Vec<Cell<'static>>> {
        let same = (cell(), prop::collection::vec(any::<bool>(), 0..9)).prop_map(|(cell, list)| {
            let each = list.into_iter();
            each.map(|has| if has { cell.clone() } else { Cell::Empty })
                .collect::<Vec<_>>()
        });
        let counts =
            prop::collection::vec((0..u64::from(u32::MAX) * 2).prop_map(Cell::Count), 0..9);
        (
            prop_oneof![same, counts],
            prop::collection::vec(cell(), 0..4),
        )
            .prop_map(|(mut one, other)| {
                one.extend(other);
                one
            })
    }

    proptest! {
        #[test]
        fn every_cell_comes_back(cells in cells(), repeated in any::<prop::sample::Index>()) {
            let mut values = Values::default();
            let mut names = Pool::default();
            let mut expected = cells.clone();
            for (row, cell) in cells.iter().enumerate() {
                values.push(cell, (row, 0), &mut names);
            }
            if !cells.is_empty() {
                let row = repeated.index(cells.len());
                values.repeat(row);
                expected.push(cells[row].clone());
            }
            for (row, cell) in expected.iter().enumerate() {
                // NaN is not equal to itself.
                let found = format!("{:?}", values.get(row, &names));
                prop_assert_eq!(found, format!("{:?}", cell));
            }
            if let Some(keys) = values.sort_keys(expected.len()) {
                for (one, cell) in expected.iter().enumerate() {
                    for (other, other_cell) in expected.iter().enumerate() {
                        prop_assert_eq!(keys[one].cmp(&keys[other]), cell.compare(other_cell, 1.0));
                    }
                }
            }
        }
    }
}
