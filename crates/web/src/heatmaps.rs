//! `/api/heatmap`: samples by column of time and place within the column, so that what happens within each second can be
//! compared with other seconds.

use crate::api::{HeatmapAnswer, HeatmapRequest, TimelineEvent, TimelineValue};
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::selected::Selected;
use crate::server::Shared;
use crate::texts;
use dioptra_profile::SelectError;
use std::num::NonZeroU64;

/// The largest number of values in an answer.
const MOST_VALUES: u64 = 1 << 19;
/// The largest number of rows.
const MOST_ROWS: u32 = 1000;
/// The number of rows unless the request gives one.
const ROWS: u32 = 50;
/// The width of a column unless the request gives one: a second.
const COLUMN_NS: u64 = 1_000_000_000;

/// The columns and rows of a heat map.
struct Grid {
    from: u64,
    to: u64,
    /// The number of the first column, counted from the recording's first sample.
    first: u64,
    width: NonZeroU64,
    columns: u64,
    rows: u32,
}

impl Grid {
    /// Returns the columns that cover a span, which must not be empty.
    fn over((from, to): (u64, u64), width: NonZeroU64, rows: u32) -> Grid {
        let first = from / width;
        Grid {
            from,
            to,
            first,
            width,
            columns: (to - 1) / width - first + 1,
            rows,
        }
    }

    /// Returns the place of a time among the values.
    #[inline]
    fn place(&self, elapsed: u64) -> Option<usize> {
        if elapsed < self.from || elapsed >= self.to {
            return None;
        }
        let column = elapsed / self.width - self.first;
        let offset = u128::from(elapsed % self.width);
        let row = offset * u128::from(self.rows) / u128::from(self.width.get());
        // The offset is less than the width, so the row is less than their number.
        usize::try_from(u128::from(column) * u128::from(self.rows) + row).ok()
    }
}

/// Answers `/api/heatmap`.
pub(crate) fn answer(
    shared: &Shared,
    request: &HeatmapRequest,
    ticket: &Ticket,
) -> Result<HeatmapAnswer, Failure> {
    let mut selection = request.selection.clone();
    let time = request.span.or(selection.time).unwrap_or_default();
    if request.span.is_some() {
        // The span is counted in full, so that the selected time can be drawn as a part of it.
        selection.time = None;
    }
    let selected = Selected::of(shared, &selection, false)?;
    ticket.check()?;
    let duration = selected.loaded.duration.ok_or(SelectError::NoTimes)?;
    let end = duration.saturating_add(1);
    let (from, to) = (time.0.unwrap_or(0), time.1.unwrap_or(end).min(end));
    if from >= to {
        return Err(Failure::parameter(
            "span",
            "begins behind the recording's end",
        ));
    }
    let rows = request.rows.unwrap_or(ROWS);
    if !(1..=MOST_ROWS).contains(&rows) {
        return Err(Failure::parameter("rows", format!("is 1 to {MOST_ROWS}")));
    }
    let width = NonZeroU64::new(request.column_ns.unwrap_or(COLUMN_NS));
    let width = width.ok_or_else(|| Failure::parameter("column_ns", "is at least 1"))?;
    let grid = Grid::over((from, to), width, rows);
    if grid.columns > MOST_VALUES / u64::from(rows) {
        return Err(Failure::parameter(
            "column_ns",
            "gives too many columns for the span: choose wider columns",
        ));
    }
    let event = selected.first_event()?;
    let of_event = &selected.profile.events()[event];
    // No more than the limit above.
    let mut values = vec![0_u64; grid.columns as usize * rows as usize];
    let by_weight = request.value == Some(TimelineValue::Weight);
    let (mut samples, mut weight, mut untimed) = (0_u64, 0_u64, 0_u64);
    of_event.samples(|sample| {
        let Some(elapsed) = sample.elapsed else {
            untimed += 1;
            return;
        };
        let Some(place) = grid.place(elapsed) else {
            return;
        };
        samples += 1;
        weight = weight.saturating_add(sample.weight);
        let value = match by_weight {
            true => sample.weight,
            false => 1,
        };
        values[place] = values[place].saturating_add(value);
    });
    Ok(HeatmapAnswer {
        profile: selected.loaded.index,
        generation: selected.loaded.generation,
        event: TimelineEvent {
            key: selected.loaded.keys.event(event),
            name: texts::name(of_event.name()),
            unit: texts::unit(of_event),
        },
        start_ns: grid.first.saturating_mul(width.get()),
        column_ns: width.get(),
        columns: u32::try_from(grid.columns).unwrap_or(u32::MAX),
        rows,
        peak: values.iter().copied().max().unwrap_or(0),
        values,
        samples,
        weight,
        untimed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_one_place() {
        let width = NonZeroU64::new(10).expect("a width");
        // The column is no multiple of the rows.
        let grid = Grid::over((15, 42), width, 3);
        assert_eq!((grid.first, grid.columns), (1, 4));
        let places: Vec<_> = (14..43).map(|time| grid.place(time)).collect();
        assert_eq!((places[0], places[28]), (None, None));
        assert_eq!(places[1], Some(1));
        let rows: Vec<_> = (20..30).filter_map(|time| grid.place(time)).collect();
        assert_eq!(rows, [3, 3, 3, 3, 4, 4, 4, 5, 5, 5]);
        let far = Grid::over((u64::MAX - 1, u64::MAX), width, 1000);
        assert!(far.place(u64::MAX - 1).is_some_and(|place| place < 1000));
    }
}
