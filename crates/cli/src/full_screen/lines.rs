//! Lines of text on the screen, in columns of the terminal.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::text::Span;

/// Returns the area without a number of columns at the left.
pub fn shrunk(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect {
        x: area.x + columns,
        width: area.width - columns,
        ..area
    }
}

/// Shortens a text to a number of columns, with a mark that there is more.
pub fn shortened(text: &str, room: usize) -> String {
    if Span::raw(text).width() <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 1;
    for part in Span::raw(text).styled_graphemes(Style::new()) {
        used += Span::raw(part.symbol).width();
        if used > room {
            break;
        }
        short.push_str(part.symbol);
    }
    short + "…"
}

/// Writes a text, from its column `skip` on, into a line. Returns the number of columns written.
pub fn put(buffer: &mut Buffer, line: Rect, y: u16, skip: usize, text: &str, style: Style) -> u16 {
    let mut column = 0;
    let mut used = 0;
    for part in Span::raw(text).styled_graphemes(style) {
        let width = Span::raw(part.symbol).width();
        let from = column;
        column += width;
        if column <= skip {
            continue;
        }
        if from < skip {
            // Only the right half of a wide character is visible.
            used += (column - skip) as u16;
            continue;
        }
        if usize::from(used) + width > usize::from(line.width) {
            break;
        }
        buffer.set_string(line.x + used, y, part.symbol, style);
        used += width as u16;
    }
    used.min(line.width)
}
