//! A list of fields, each shown or not.

use super::keys::Command;

/// Fields to choose from.
pub struct Chooser {
    /// Names, and whether they are chosen.
    items: Vec<(&'static str, bool)>,
    at: usize,
}

impl Chooser {
    /// Makes the list of all names; the flag says whether a name is chosen.
    pub fn new(items: Vec<(&'static str, bool)>) -> Chooser {
        Chooser { items, at: 0 }
    }

    /// Returns the names, and whether they are chosen.
    pub fn items(&self) -> &[(&'static str, bool)] {
        &self.items
    }

    /// Returns the index of the current name.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Moves the cursor, or chooses. Returns whether the choice is done.
    pub fn take(&mut self, command: Command) -> bool {
        let last = self.items.len().saturating_sub(1);
        match command {
            Command::Up => self.at = self.at.saturating_sub(1),
            Command::Down => self.at = (self.at + 1).min(last),
            Command::First | Command::PageUp => self.at = 0,
            Command::Last => self.at = last,
            // On pages the space bar has this command; here it chooses.
            Command::PageDown => {
                if let Some((_, chosen)) = self.items.get_mut(self.at) {
                    *chosen = !*chosen;
                }
            }
            Command::Enter | Command::Back | Command::Quit | Command::Fields => return true,
            _ => {}
        }
        false
    }
}
