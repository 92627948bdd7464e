//! The rows that a screen shows of a table.

use super::ShownRows;
use crate::order::{self, RowPosition};
use crate::{Cell, Table, Unit};

/// Rows that are shown, and a sentence about the others.
pub(super) struct Kept {
    pub places: Vec<RowPosition>,
    pub left_out: Option<String>,
}

/// Chooses rows of a table in its display order.
pub(super) fn kept(table: &Table, order: &[RowPosition], rows: ShownRows) -> Kept {
    let top = match rows {
        ShownRows::All => usize::MAX,
        ShownRows::Top(top) => top,
        ShownRows::Best(best) if table.is_tree() => return best_of_tree(table, order, best),
        ShownRows::Best(best) => best,
    };
    let count = order::kept(order, top);
    let left_out = table.left_out_after(order, count);
    Kept {
        places: order[..count].to_vec(),
        left_out: left_out.map(|left_out| left_out.sentence()),
    }
}

/// Chooses the rows with the largest shares.
fn best_of_tree(table: &Table, order: &[RowPosition], best: usize) -> Kept {
    let mut columns = table.columns.iter();
    let share = columns.position(|column| column.unit == Unit::Percent);
    let cell =
        |place: &RowPosition| share.map_or(Cell::Empty, |share| table.row(place.row).cell(share));
    let mut ranked: Vec<usize> = (0..order.len()).collect();
    let scale = Unit::Percent.scale();
    // Stable: of equal rows the upper one comes first.
    ranked.sort_by(|one, other| cell(&order[*other]).compare(&cell(&order[*one]), scale));
    let mut keep = vec![false; order.len()];
    let mut count = 0;
    for index in ranked {
        if count >= best {
            break;
        }
        // A row stands below those above it, which are shown, too.
        let mut depth = order[index].depth + 1;
        for at in (0..=index).rev() {
            if order[at].depth < depth {
                depth = order[at].depth;
                if keep[at] {
                    break;
                }
                keep[at] = true;
                count += 1;
            }
        }
    }
    let (mut places, mut most) = (Vec::with_capacity(count), Cell::Empty);
    for (place, keep) in order.iter().zip(&keep) {
        if *keep {
            places.push(*place);
        } else if cell(place).compare(&most, scale).is_gt() {
            most = cell(place);
        }
    }
    let left_out = order.len() - places.len();
    let rows = if left_out == 1 { "row" } else { "rows" };
    let most = most.value(scale);
    Kept {
        places,
        left_out: (left_out > 0).then(|| match most {
            Some(most) => format!("{left_out} more {rows}, none above {most:.2}%"),
            None => format!("{left_out} more {rows}"),
        }),
    }
}
