//! The cursor in a list, and the part of the list on the screen.

/// A line of a list, and the first line and column on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The line.
    pub at: usize,
    /// The first line on the screen.
    pub top: usize,
    /// The first column on the screen.
    pub left: usize,
}

impl Cursor {
    /// Moves by a number of lines, forward or back.
    pub fn step(&mut self, lines: isize) {
        self.at = self.at.saturating_add_signed(lines);
    }

    /// Scrolls by a number of columns.
    pub fn scroll(&mut self, columns: isize) {
        self.left = self.left.saturating_add_signed(columns);
    }

    /// Shows the line in the middle of the screen.
    pub fn center(&mut self, height: usize) {
        self.top = self.at.saturating_sub(height / 2);
    }

    /// Keeps the line within a list of `count`, and on a screen of `height` lines.
    pub fn fit(&mut self, count: usize, height: usize) {
        let height = height.max(1);
        self.at = self.at.min(count.saturating_sub(1));
        self.top = self.top.min(self.at).min(count.saturating_sub(1));
        if self.at - self.top >= height {
            self.top = self.at + 1 - height;
        }
    }

    /// Scrolls to the side so that `column` is on a screen of `width` columns, with a third of the screen to spare.
    pub fn show_column(&mut self, column: usize, width: usize) {
        let room = width * 2 / 3;
        if column < self.left {
            self.left = column.saturating_sub(room / 2);
        } else if column - self.left > room {
            self.left = column - room / 2;
        }
        if column <= room / 2 {
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_stays_on_the_screen() {
        let mut cursor = Cursor::default();
        cursor.step(-1);
        cursor.fit(100, 10);
        assert_eq!((cursor.at, cursor.top), (0, 0));
        cursor.step(25);
        cursor.fit(100, 10);
        assert_eq!((cursor.at, cursor.top), (25, 16));
        cursor.center(10);
        cursor.fit(100, 10);
        assert_eq!((cursor.at, cursor.top), (25, 20));
        cursor.step(1000);
        cursor.fit(100, 10);
        assert_eq!((cursor.at, cursor.top), (99, 90));
        // The list, or the screen, has become smaller.
        cursor.fit(5, 0);
        assert_eq!((cursor.at, cursor.top), (4, 4));
        cursor.fit(0, 10);
        assert_eq!((cursor.at, cursor.top), (0, 0));
    }

    #[test]
    fn deep_lines_are_scrolled_to() {
        let mut cursor = Cursor::default();
        cursor.show_column(30, 60);
        assert_eq!(cursor.left, 0);
        cursor.show_column(300, 60);
        assert!(cursor.left <= 300 && 300 - cursor.left < 40);
        cursor.show_column(3, 60);
        assert_eq!(cursor.left, 0);
        cursor.show_column(9, 0);
        assert_eq!(cursor.left, 9);
    }
}
