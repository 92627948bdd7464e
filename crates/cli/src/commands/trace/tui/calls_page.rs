//! A call graph on the screen: of a whole program, or of one function with its callers.

use super::cursor::Cursor;
use super::keys::Command;
use super::outline::Outline;
use super::page::{Line, Page};
use super::search::{Match, Query};
use crate::commands::trace::graph::{Lines, outermost};
use dioptra_calls::CallPathTree;
use dioptra_tables::escape;

/// A line above the graph, and its function.
struct Heading {
    text: String,
    function: Option<u32>,
}

/// A call graph, maybe with backtraces above it.
pub struct CallsPage {
    title: String,
    /// The program's name, if the root is a line.
    program: String,
    above: Vec<Heading>,
    outline: Outline,
    cursor: Cursor,
}

impl CallsPage {
    /// Makes the page of all calls of a program.
    pub fn whole(tree: CallPathTree, program: &str) -> CallsPage {
        CallsPage {
            title: format!("graph of {}", escape(program)),
            program: escape(program),
            above: Vec::new(),
            outline: Outline::new(tree, true),
            cursor: Cursor::default(),
        }
    }

    /// Makes the page of the wanted functions' callers and callees.
    pub fn around(
        tree: &CallPathTree,
        name: &str,
        is_wanted: &[bool],
        lines: &mut Lines<'_, '_>,
    ) -> CallsPage {
        let mut above = Vec::new();
        let mut add = |text: String, function| above.push(Heading { text, function });
        for (number, node) in outermost(tree, is_wanted).into_iter().enumerate() {
            add(lines.backtrace(number, &tree.nodes()[node as usize]), None);
            for (level, function) in tree.path(node).into_iter().enumerate() {
                add(lines.step(level, function), Some(function));
            }
            add(String::new(), None);
        }
        let below = tree.below(|function| is_wanted.get(function as usize) == Some(&true));
        let mut page = CallsPage {
            title: format!("graph of {name}"),
            program: String::new(),
            above,
            outline: Outline::new(below, false),
            cursor: Cursor::default(),
        };
        // The cursor starts at the function itself, below its backtraces.
        page.cursor.at = page.above.len();
        page
    }

    /// Returns the tree.
    pub fn tree(&self) -> &CallPathTree {
        self.outline.tree()
    }

    /// Returns the node of a line.
    fn node(&self, place: usize) -> Option<u32> {
        let place = place.checked_sub(self.above.len())?;
        self.outline.visible().get(place).copied()
    }

    fn go(&mut self, node: Option<u32>) -> bool {
        if let Some(node) = node {
            self.outline.reveal(node);
            self.cursor.at = self.above.len() + self.outline.place(node);
        }
        node.is_some()
    }

    /// Carries out a command at the current line. Returns whether there was anything to do.
    pub fn walk(&mut self, command: Command, lines: &Lines<'_, '_>) -> bool {
        let Some(node) = self.node(self.cursor.at) else {
            return false;
        };
        let outline = &mut self.outline;
        match command {
            Command::Enter => outline.toggle(node),
            Command::CollapseChildren => outline.fold_children(node, true),
            Command::ExpandChildren => outline.fold_children(node, false),
            Command::CollapseAll => outline.fold_below(node, true),
            Command::ExpandAll => outline.fold_below(node, false),
            Command::Next => {
                let next = outline.sibling(node, true);
                return self.go(next);
            }
            Command::Previous => {
                let previous = outline.sibling(node, false);
                return self.go(previous);
            }
            Command::Parent => {
                let parent = outline.parent(node);
                return self.go(parent);
            }
            Command::Longest => {
                let longest = outline.longest(node, |child| lines.total(child));
                return self.go(longest);
            }
            _ => return false,
        }
        true
    }
}

impl Page for CallsPage {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn heading(&self, lines: &Lines<'_, '_>) -> String {
        lines.heading()
    }

    fn count(&self) -> usize {
        self.above.len() + self.outline.visible().len()
    }

    fn line(&self, place: usize, lines: &mut Lines<'_, '_>) -> Line {
        if let Some(heading) = self.above.get(place) {
            return Line {
                text: heading.text.clone(),
                ..Line::default()
            };
        }
        let Some(node) = self.node(place) else {
            return Line::default();
        };
        let mut fixed = Vec::new();
        let text = if node == 0 {
            lines.push_program(self.tree(), &mut fixed);
            format!("(1) {}", self.program)
        } else {
            let known = self.outline.node(node);
            lines.push_fields(Some(known), &mut fixed);
            format!("{}{}", self.outline.indent(node), lines.node(known))
        };
        // The fold is marked twice, because the text behind a long name may be off the screen.
        let (mark, fold) = match self.outline.hidden(node) {
            0 => (b' ', String::new()),
            hidden => (b'+', format!("  [+{hidden}]")),
        };
        fixed.push(mark);
        Line {
            fixed: String::from_utf8_lossy(&fixed).into_owned(),
            text,
            fold,
        }
    }

    fn function(&self, place: usize) -> Option<u32> {
        match self.above.get(place) {
            Some(heading) => heading.function,
            None => {
                let node = self.node(place).filter(|node| *node != 0)?;
                Some(self.outline.node(node).function)
            }
        }
    }

    fn position(&self) -> String {
        let line = format!("line {} of {}", self.cursor.at + 1, self.count());
        match self.node(self.cursor.at) {
            Some(node) if node != 0 => format!("{line}, depth {}", self.outline.depth(node)),
            _ => line,
        }
    }

    fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    fn show_column(&mut self, width: usize) {
        let column = match self.node(self.cursor.at) {
            Some(node) => self.outline.indent_width(node),
            None => 0,
        };
        self.cursor.show_column(column, width);
    }

    fn find(
        &mut self,
        query: &Query,
        forward: bool,
        inclusive: bool,
        lines: &mut Lines<'_, '_>,
    ) -> Option<Match> {
        // Each function's name is matched once, however many nodes the function has.
        let count = self.tree().nodes().iter().map(|node| node.function).max()?;
        let mut known: Vec<Option<bool>> = vec![None; count as usize + 1];
        for node in self.tree().nodes().iter().skip(1) {
            known[node.function as usize]
                .get_or_insert_with(|| query.matches(lines.labels.get(node.function)));
        }
        let is_match = |function: u32| known[function as usize] == Some(true);
        let here = self.node(self.cursor.at);
        let (node, number, of) = self.outline.find(here, forward, inclusive, is_match)?;
        self.outline.reveal(node);
        Some((self.above.len() + self.outline.place(node), number, of))
    }
}
