//! Drawing of the browser. Only visible lines are made.

use super::app::App;
use crate::full_screen::{put, shortened, shrunk};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Span;

/// The styles of the screen's parts.
#[derive(Clone, Copy)]
pub struct Look {
    /// Whether colours are used: not if `NO_COLOR` is set.
    pub colored: bool,
}

impl Look {
    fn alarm(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self.colored {
            true => style.fg(Color::Red),
            false => style,
        }
    }

    fn fold(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self.colored {
            true => style.fg(Color::Yellow),
            false => style,
        }
    }
}

const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything, and tells the browser how much fits on the screen. Returns the position of the terminal's cursor
/// while the user is typing.
pub fn draw(
    app: &mut App<'_, '_>,
    look: Look,
    area: Rect,
    buffer: &mut Buffer,
) -> Option<(u16, u16)> {
    let (width, height) = (area.width, area.height);
    if width == 0 || height == 0 {
        return None;
    }
    let facts = app.facts();
    // On a small screen lines are worth more than headings and diagnostics.
    let below = u16::from(height > 1);
    let facts_height = u16::from(height > 2 && !facts.is_empty());
    let heading_height = u16::from(height > 3);
    let body = Rect {
        y: area.y + heading_height,
        height: height - below - facts_height - heading_height,
        ..area
    };
    page(app, look, area.y, heading_height > 0, body, buffer);
    if facts_height > 0 {
        let more = match facts.len() {
            1 => String::new(),
            more => format!(" (I: {} more)", more - 1),
        };
        let style = match app.is_alarming() {
            true => look.alarm(),
            false => Style::new(),
        };
        let room = usize::from(width).saturating_sub(more.len());
        let text = format!("{}{more}", shortened(&facts[0], room));
        put(buffer, area, body.bottom(), 0, &text, style);
    }
    let mut cursor = None;
    if below > 0 {
        let y = area.bottom() - 1;
        buffer.set_style(
            Rect {
                y,
                height: 1,
                ..area
            },
            REVERSED,
        );
        match &app.typed {
            Some(typed) => {
                let text = format!("/{}", dioptra_tables::escape(typed));
                let end = Span::raw(&text).width();
                let skip = (end + 1).saturating_sub(usize::from(width));
                put(buffer, area, y, skip, &text, REVERSED);
                cursor = Some((area.x + (end - skip) as u16, y));
            }
            None => footer(app, area, y, buffer),
        }
    }
    chooser(app, body, buffer);
    cursor
}

/// Draws the heading and the lines.
fn page(
    app: &mut App<'_, '_>,
    look: Look,
    top: u16,
    with_heading: bool,
    body: Rect,
    buffer: &mut Buffer,
) {
    app.screen.0 = usize::from(body.height);
    let (page, lines) = app.page();
    let at = page.cursor().at;
    page.read(at.saturating_add(usize::from(body.height) + 1));
    let count = page.count();
    page.cursor().fit(count, usize::from(body.height));
    let cursor = *page.cursor();
    if with_heading {
        let heading = page.heading(lines);
        let heading = if heading.is_empty() {
            page.title()
        } else {
            heading
        };
        let style = Style::new().add_modifier(Modifier::BOLD);
        let line = Rect {
            y: top,
            height: 1,
            ..body
        };
        put(buffer, line, top, 0, &heading, style);
    }
    let mut room = usize::from(body.width);
    for row in 0..body.height {
        let place = cursor.top + usize::from(row);
        if place >= count {
            break;
        }
        let line = page.line(place, lines);
        let y = body.y + row;
        let whole = Rect {
            y,
            height: 1,
            ..body
        };
        let style = match place == cursor.at {
            true => REVERSED,
            false => Style::new(),
        };
        buffer.set_style(whole, style);
        let fixed = put(buffer, whole, y, 0, &line.fixed, style);
        let rest = shrunk(whole, fixed);
        room = usize::from(rest.width);
        let text = put(buffer, rest, y, cursor.left, &line.text, style);
        let skip = cursor.left.saturating_sub(Span::raw(&line.text).width());
        put(
            buffer,
            shrunk(rest, text),
            y,
            skip,
            &line.fold,
            look.fold().patch(style),
        );
    }
    app.screen.1 = room;
}

/// Draws the cursor's position, or the message.
fn footer(app: &mut App<'_, '_>, area: Rect, y: u16, buffer: &mut Buffer) {
    const HELP: &str = " h: help  q: quit";
    let text = match app.message.as_str() {
        "" => {
            let (page, _) = app.page();
            format!("{}: {}", page.title(), page.position())
        }
        message => message.to_owned(),
    };
    let room = usize::from(area.width);
    let text_room = match room > 2 * HELP.len() {
        true => room - HELP.len(),
        false => room,
    };
    let used = put(buffer, area, y, 0, &shortened(&text, text_room), REVERSED);
    if usize::from(used) + HELP.len() <= room {
        let right = shrunk(area, area.width - HELP.len() as u16);
        put(buffer, right, y, 0, HELP, REVERSED);
    }
}

/// Draws the list of fields above the page.
fn chooser(app: &App<'_, '_>, body: Rect, buffer: &mut Buffer) {
    let Some(chooser) = &app.chooser else {
        return;
    };
    let lines = chooser
        .items()
        .iter()
        .enumerate()
        .map(|(place, (name, chosen))| {
            let mark = if *chosen { 'x' } else { ' ' };
            let style = match place == chooser.at() {
                true => REVERSED,
                false => Style::new(),
            };
            (format!(" [{mark}] {name:<14}"), style)
        });
    let title = " Space: choose, Enter: done ".to_owned();
    let title = (title, Style::new().add_modifier(Modifier::BOLD));
    let width = body.width.min(28);
    let left = body.right() - width;
    let room = usize::from(body.height.saturating_sub(1));
    let skip = (chooser.at() + 1).saturating_sub(room);
    let shown = std::iter::once(title).chain(lines.skip(skip));
    for (y, (text, style)) in (body.y..body.bottom()).zip(shown) {
        let line = Rect {
            x: left,
            y,
            width,
            height: 1,
        };
        for x in line.left()..line.right() {
            buffer[(x, y)].reset();
        }
        buffer.set_style(line, style);
        put(buffer, line, y, 0, &text, style);
    }
}
