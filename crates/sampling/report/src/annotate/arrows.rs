//! Arrows from jumps to their targets, beside the instructions.

use std::collections::{BTreeMap, BTreeSet};

/// The most lanes that are drawn; the eye cannot follow more arrows side by side.
const MOST_LANES: usize = 10;

/// A jump between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    pub from: usize,
    pub to: usize,
}

impl Arrow {
    fn first(self) -> usize {
        self.from.min(self.to)
    }

    fn last(self) -> usize {
        self.from.max(self.to)
    }
}

/// Arrows in lanes, lane 0 next to the instructions.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrows {
    /// The groups of each lane by their first place; the groups of one lane do not overlap.
    lanes: Vec<BTreeMap<usize, Group>>,
    /// The number of arrows for which there was no lane.
    pub left_out: usize,
}

/// Arrows to the same place in one lane.
#[derive(Clone, Debug)]
struct Group {
    to: usize,
    from: BTreeSet<usize>,
    last: usize,
}

/// The part of a lane that is drawn beside one place.
#[derive(Clone, Copy, Default)]
struct Here {
    up: bool,
    down: bool,
    /// An arrow starts or ends here.
    ends: bool,
    /// An arrow's head is here: this place is its target.
    head: bool,
}

fn here(lane: &BTreeMap<usize, Group>, place: usize) -> Here {
    match lane.range(..=place).next_back() {
        Some((first, group)) if place <= group.last => Here {
            up: *first < place,
            down: place < group.last,
            ends: group.to == place || group.from.contains(&place),
            head: group.to == place,
        },
        _ => Here::default(),
    }
}

/// Puts an arrow into a lane unless another group is in its way, and returns whether it did.
fn put(lane: &mut BTreeMap<usize, Group>, arrow: Arrow) -> bool {
    let (mut first, mut last) = (arrow.first(), arrow.last());
    // Groups do not overlap, so the groups in the way are the last ones that begin at or before `last`. A group with
    // the same target contains that place, so at most one of them is such a group.
    let mut in_the_way = lane.range(..=last).rev();
    let next = in_the_way.next().filter(|(_, group)| group.last >= first);
    let second = in_the_way.next().filter(|(_, group)| group.last >= first);
    let mut from = BTreeSet::from([arrow.from]);
    match (next, second) {
        (None, _) => {}
        (Some((start, group)), None) if group.to == arrow.to => {
            (first, last) = (first.min(*start), last.max(group.last));
            let start = *start;
            from.extend(
                lane.remove(&start)
                    .map(|group| group.from)
                    .unwrap_or_default(),
            );
        }
        _ => return false,
    }
    let to = arrow.to;
    lane.insert(first, Group { to, from, last });
    true
}

/// The characters of arrows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glyphs {
    down: char,
    along: char,
    top: char,
    bottom: char,
    /// The crossing of a lane with the horizontal end of another lane's arrow.
    cross: char,
    /// The end of an arrow at which its lane goes on.
    join: char,
    head: char,
}

/// Box drawing characters.
pub(super) const UNICODE: Glyphs = Glyphs {
    down: '│',
    along: '─',
    top: '┌',
    bottom: '└',
    cross: '┼',
    join: '├',
    head: '►',
};

/// ASCII characters, for terminals without box drawing.
pub(super) const ASCII: Glyphs = Glyphs {
    down: '|',
    along: '-',
    top: ',',
    bottom: '\'',
    cross: '+',
    join: '|',
    head: '>',
};

impl Arrows {
    /// Puts arrows into lanes, short arrows inside long ones. Arrows to the same place share a lane where they can.
    pub fn new(mut arrows: Vec<Arrow>) -> Arrows {
        arrows.sort_by_key(|arrow| (arrow.last() - arrow.first(), arrow.first(), arrow.from));
        arrows.dedup();
        let mut result = Arrows::default();
        for arrow in arrows {
            if result.lanes.iter_mut().any(|lane| put(lane, arrow)) {
                continue;
            }
            if result.lanes.len() == MOST_LANES {
                result.left_out += 1;
                continue;
            }
            let mut lane = BTreeMap::new();
            put(&mut lane, arrow);
            result.lanes.push(lane);
        }
        result
    }

    /// Appends the lanes beside a place.
    pub fn beside(&self, place: usize, glyphs: Glyphs, out: &mut String) {
        let mut ends = false;
        let mut head = false;
        // Lanes are drawn from the outermost one to the instruction: the line of an arrow that ends here crosses the
        // inner lanes.
        for lane in self.lanes.iter().rev() {
            let at = here(lane, place);
            head |= at.head;
            out.push(match (at.ends, at.up, at.down, ends) {
                (true, true, true, _) => glyphs.join,
                (true, true, false, _) => glyphs.bottom,
                (true, _, _, _) => glyphs.top,
                (false, true, true, true) => glyphs.cross,
                (false, true, true, false) => glyphs.down,
                (false, _, _, true) => glyphs.along,
                (false, _, _, false) => ' ',
            });
            ends |= at.ends;
            out.push(if ends { glyphs.along } else { ' ' });
        }
        if !self.lanes.is_empty() {
            out.push(match (ends, head) {
                (true, true) => glyphs.head,
                (true, false) => glyphs.along,
                _ => ' ',
            });
        }
    }

    /// Appends the lanes beside a line between the places `place - 1` and `place`.
    pub fn before(&self, place: usize, glyphs: Glyphs, out: &mut String) {
        for lane in self.lanes.iter().rev() {
            let passes = here(lane, place).up;
            out.push(if passes { glyphs.down } else { ' ' });
            out.push(' ');
        }
        if !self.lanes.is_empty() {
            out.push(' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(arrows: &[(usize, usize)], glyphs: Glyphs) -> Vec<String> {
        let arrows: Vec<Arrow> = arrows
            .iter()
            .map(|&(from, to)| Arrow { from, to })
            .collect();
        let last = arrows.iter().map(|arrow| arrow.last()).max().unwrap_or(0);
        let arrows = Arrows::new(arrows);
        (0..=last)
            .map(|place| {
                let mut line = String::new();
                arrows.beside(place, glyphs, &mut line);
                assert_eq!(line.chars().count(), 2 * arrows.lanes.len() + 1);
                line
            })
            .collect()
    }

    #[test]
    fn nested_and_shared_arrows() {
        assert_eq!(drawn(&[(2, 0)], UNICODE), ["┌─►", "│  ", "└──"]);
        assert_eq!(drawn(&[(0, 2)], ASCII), [",--", "|  ", "'->"]);
        // Two jumps to one place share a lane.
        assert_eq!(
            drawn(&[(0, 3), (1, 3)], UNICODE),
            ["┌──", "├──", "│  ", "└─►"]
        );
        // A loop in a loop.
        assert_eq!(
            drawn(&[(4, 0), (3, 1)], UNICODE),
            ["┌───►", "│ ┌─►", "│ │  ", "│ └──", "└────"]
        );
        // Crossing arrows.
        assert_eq!(
            drawn(&[(0, 2), (1, 3)], UNICODE),
            ["  ┌──", "┌─┼──", "│ └─►", "└───►"]
        );
        assert_eq!(drawn(&[(1, 1)], UNICODE), ["   ", "┌─►"]);
    }

    #[test]
    fn too_many_arrows_are_counted() {
        let arrows = (0..30).map(|from| Arrow {
            from,
            to: 100 - from,
        });
        let arrows = Arrows::new(arrows.collect());
        assert_eq!(arrows.left_out, 20);
        assert_eq!(arrows.lanes.len(), 10);
    }

    #[test]
    fn lines_between_places_show_what_passes() {
        let arrows = Arrows::new(vec![Arrow { from: 2, to: 0 }]);
        let before = |place| {
            let mut line = String::new();
            arrows.before(place, UNICODE, &mut line);
            line
        };
        assert_eq!(
            [before(0), before(1), before(2), before(3)],
            ["   ", "│  ", "│  ", "   "]
        );
    }
}
