//! The commands of keys.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The command that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Left,
    Right,
    Center,
    /// Folds or unfolds. In lists of functions, does the same as [`Command::Around`].
    Enter,
    CollapseChildren,
    ExpandChildren,
    CollapseAll,
    ExpandAll,
    /// Goes to the next sibling; on pages without siblings, to the next match.
    Next,
    /// Goes to the previous sibling; on pages without siblings, to the previous match.
    Previous,
    Parent,
    Longest,
    Search,
    NextMatch,
    PreviousMatch,
    Graph,
    Around,
    Report,
    ReportHere,
    Replay,
    Info,
    Tasks,
    Help,
    Edit,
    Sort,
    Fields,
    Back,
    Quit,
    Redraw,
    Suspend,
    Interrupt,
}

/// The keys of each command, for the help page.
pub const HELP: [(&str, &str); 28] = [
    ("Up Down  k j", "move the cursor"),
    ("PageUp PageDown", "move it by a page"),
    ("Home End", "move it to the first or last line"),
    ("Left Right", "scroll to the side"),
    ("z", "put the line in the middle of the screen"),
    ("Enter", "fold or unfold; in the report as g"),
    ("c e", "collapse or expand the children"),
    ("C E", "collapse or expand all below"),
    (
        "n p",
        "next or previous sibling; elsewhere next or previous match",
    ),
    ("u", "up to the caller"),
    ("l", "to the child that took longest"),
    ("", ""),
    ("G", "graph: who called whom, from the program on"),
    ("g", "backtraces of this function, and what it called"),
    ("R", "report: a table of functions"),
    ("r", "this function in the report"),
    ("t", "the calls in the order of time"),
    ("I", "info: what the trace holds"),
    ("S", "processes and threads"),
    ("O", "open $EDITOR where this function is written"),
    ("", ""),
    (
        "/",
        "search: a part of a name; capitals count if there are some",
    ),
    ("> N", "next match"),
    ("< P", "previous match"),
    ("s", "sort the report by the next column"),
    ("f", "choose the fields of the graph or report"),
    ("h ?", "this help; Esc and q lead back"),
    ("q", "quit"),
];

/// Returns the command of a key, if it has one.
pub fn command(key: &KeyEvent) -> Option<Command> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Command::Interrupt),
            KeyCode::Char('z') => Some(Command::Suspend),
            KeyCode::Char('l') => Some(Command::Redraw),
            KeyCode::Char('b') => Some(Command::PageUp),
            KeyCode::Char('f') => Some(Command::PageDown),
            _ => None,
        };
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    Some(match key.code {
        KeyCode::Up | KeyCode::Char('k') => Command::Up,
        KeyCode::Down | KeyCode::Char('j') => Command::Down,
        KeyCode::PageUp => Command::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Command::PageDown,
        KeyCode::Home => Command::First,
        KeyCode::End => Command::Last,
        KeyCode::Left => Command::Left,
        KeyCode::Right => Command::Right,
        KeyCode::Enter => Command::Enter,
        KeyCode::Esc | KeyCode::Backspace => Command::Back,
        KeyCode::Char(letter) => match letter {
            'z' => Command::Center,
            'c' => Command::CollapseChildren,
            'e' => Command::ExpandChildren,
            'C' => Command::CollapseAll,
            'E' => Command::ExpandAll,
            'n' => Command::Next,
            'p' => Command::Previous,
            'u' => Command::Parent,
            'l' => Command::Longest,
            'G' => Command::Graph,
            'g' => Command::Around,
            'R' => Command::Report,
            'r' => Command::ReportHere,
            't' => Command::Replay,
            'I' => Command::Info,
            'S' => Command::Tasks,
            'O' => Command::Edit,
            '/' => Command::Search,
            '>' | 'N' => Command::NextMatch,
            '<' | 'P' => Command::PreviousMatch,
            's' => Command::Sort,
            'f' => Command::Fields,
            'h' | '?' => Command::Help,
            'q' => Command::Quit,
            _ => return None,
        },
        _ => return None,
    })
}
