//! Random trees for the program `trace-interpreter`.

use std::fmt;

/// A tree: a word and its lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    word: String,
    first: Vec<Tree>,
    second: Vec<Tree>,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)?;
        if self.first.is_empty() && self.second.is_empty() {
            return Ok(());
        }
        write!(f, "({}", text(&self.first))?;
        if !self.second.is_empty() {
            write!(f, " : {}", text(&self.second))?;
        }
        f.write_str(")")
    }
}

/// Returns a line for the program.
pub fn text(list: &[Tree]) -> String {
    let words: Vec<String> = list.iter().map(Tree::to_string).collect();
    words.join(" ")
}

/// A source of numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Returns the list that a seed makes.
pub fn random(seed: u64) -> Vec<Tree> {
    let mut random = Random(seed);
    let mut left = 10 + random.below(90);
    let mut trees = list(&mut random, &mut left, 0);
    // Threads and processes are costly.
    let (mut threads, mut processes) = (4, 2);
    trees.iter_mut().for_each(|tree| {
        tree.walk(&mut |tree| {
            let bound = match tree.word.as_str() {
                "thread" => &mut threads,
                "fork" | "vfork" => &mut processes,
                _ => return,
            };
            if *bound == 0 {
                tree.word = "f1".to_owned();
            } else {
                *bound -= 1;
            }
        });
    });
    trees
}

fn list(random: &mut Random, left: &mut u64, depth: u64) -> Vec<Tree> {
    let wanted = 1 + random.below(6);
    let mut list = Vec::new();
    while (list.len() as u64) < wanted && *left > 0 {
        *left -= 1;
        let (word, has_first, has_second) = match random.below(40) {
            0..18 => (format!("f{}", random.below(64)), random.below(3) > 0, false),
            18 => (format!("deep{}", random.below(30)), true, false),
            19..22 => ("try".to_owned(), true, true),
            22 => ("tryb".to_owned(), true, true),
            23..25 => ("throw".to_owned(), false, false),
            25 => ("throwb".to_owned(), false, false),
            26 => ("rethrow".to_owned(), false, false),
            27..29 => (format!("set{}", random.below(2)), true, false),
            29 => (format!("jump{}", 1 + random.below(2)), false, false),
            30 => ("sig".to_owned(), true, false),
            31 => ("alt".to_owned(), true, false),
            32 => ("thread".to_owned(), true, false),
            33 => (
                ["wait", "exit", "cancel"][random.below(3) as usize].to_owned(),
                false,
                false,
            ),
            34..36 => ("co".to_owned(), true, false),
            36 => ("yield".to_owned(), false, false),
            37 => ("resume".to_owned(), false, false),
            38 => ("jump1".to_owned(), false, false),
            _ => (
                ["fork", "vfork"][random.below(2) as usize].to_owned(),
                true,
                false,
            ),
        };
        let deeper = |random: &mut Random, left: &mut u64, wanted: bool| match wanted && depth < 12
        {
            true => list_below(random, left, depth),
            false => Vec::new(),
        };
        let first = deeper(random, left, has_first);
        let second = deeper(random, left, has_second);
        list.push(Tree {
            word,
            first,
            second,
        });
    }
    list
}

fn list_below(random: &mut Random, left: &mut u64, depth: u64) -> Vec<Tree> {
    list(random, left, depth + 1)
}

impl Tree {
    fn walk(&mut self, visit: &mut impl FnMut(&mut Tree)) {
        visit(self);
        for below in self.first.iter_mut().chain(&mut self.second) {
            below.walk(visit);
        }
    }
}

/// Returns fewer and smaller lists that still fail, as far as so many tries find them.
pub fn shrink(
    mut lists: Vec<Vec<Tree>>,
    mut tries: u32,
    fails: impl Fn(&[Vec<Tree>]) -> bool,
) -> Vec<Vec<Tree>> {
    let mut try_out = |lists: &[Vec<Tree>]| {
        tries = tries.saturating_sub(1);
        tries > 0 && fails(lists)
    };
    let mut part = lists.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < lists.len() && lists.len() > 1 {
            let end = (at + part).min(lists.len());
            let fewer = [&lists[..at], &lists[end..]].concat();
            if try_out(&fewer) {
                lists = fewer;
            } else {
                at = end;
            }
        }
        part /= 2;
    }
    for at in 0..lists.len() {
        'again: loop {
            for smaller in smaller(&lists[at]) {
                let mut changed = lists.clone();
                changed[at] = smaller;
                if try_out(&changed) {
                    lists = changed;
                    continue 'again;
                }
            }
            break;
        }
    }
    lists
}

/// Returns the lists with one tree less, or with a tree's list in its place.
fn smaller(list: &[Tree]) -> Vec<Vec<Tree>> {
    let mut all = Vec::new();
    for at in 0..list.len() {
        let with = |inner: &[Tree]| [&list[..at], inner, &list[at + 1..]].concat();
        all.push(with(&[]));
        let tree = &list[at];
        if !tree.first.is_empty() {
            all.push(with(&tree.first));
        }
    }
    for at in 0..list.len() {
        let tree = &list[at];
        let with = |inner: Tree| [&list[..at], &[inner], &list[at + 1..]].concat();
        for first in smaller(&tree.first) {
            let mut changed = tree.clone();
            changed.first = first;
            all.push(with(changed));
        }
        for second in smaller(&tree.second) {
            let mut changed = tree.clone();
            changed.second = second;
            all.push(with(changed));
        }
    }
    all
}
