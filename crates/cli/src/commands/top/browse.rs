//! The browser in the terminal.

use super::app::{App, Wish};
use super::batch::stop_recording;
use super::follow::{Origin, Update};
use super::status::Meter;
use super::{EndedBy, Shower};
use crate::full_screen::{self, Screen, Signals, put, shortened};
use anyhow::bail;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_crossterm::crossterm::event::{self, Event, KeyEventKind};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// The longest time between a key and its effect, or between a snapshot and its drawing.
const WAIT: Duration = Duration::from_millis(50);

/// Shows snapshots until the user quits, or the recording is ended from elsewhere.
pub fn run(shower: Shower) -> anyhow::Result<EndedBy> {
    let mut recording_goes_on = true;
    let records_here = shower.origin == Origin::Here;
    let result = browse(shower, &mut recording_goes_on);
    if recording_goes_on && records_here {
        stop_recording()?;
    }
    result
}

fn browse(shower: Shower, goes_on: &mut bool) -> anyhow::Result<EndedBy> {
    let Shower {
        received,
        requests,
        tables,
        shown,
        notes,
        origin,
        ..
    } = shower;
    let records_here = origin == Origin::Here;
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let signals = Signals::new()?;
    let mut app = App::new(tables, shown.rows, shown.filter, shown.sort);
    let mut meter = Meter::new();
    let mut is_begun = false;
    let mut screen = Screen::new("`dioptra top --batch`")?;
    let mut next = Instant::now() + shown.interval.min(Duration::from_millis(500));
    loop {
        screen.terminal.draw(|frame| {
            let area = frame.area();
            let cursor = draw(&mut app, !refused, area, frame.buffer_mut());
            if let Some(cursor) = cursor {
                frame.set_cursor_position(cursor);
            }
        })?;
        if event::poll(WAIT)? {
            let wish = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.press(&key)?,
                _ => Wish::Draw,
            };
            match wish {
                Wish::Draw => {}
                Wish::Look => next = Instant::now(),
                Wish::Redraw => screen.again()?,
                Wish::Suspend => {
                    screen.without(full_screen::stop)??;
                    signals.take_went_on();
                }
                Wish::Quit => return Ok(EndedBy::User),
            }
        }
        if signals.take_went_on() {
            screen.again()?;
        }
        // A recorder in this process takes the signal, and ends the recording.
        if (!*goes_on || !records_here) && signals.ending().is_some() {
            return Ok(EndedBy::User);
        }
        if *goes_on && !app.paused && Instant::now() >= next {
            requests.snapshot();
            next = Instant::now() + shown.interval;
        }
        app.notes = notes.all();
        match received.try_recv() {
            Ok(Update::Snapshot(snapshot)) if app.paused => drop(snapshot),
            Ok(Update::Snapshot(snapshot)) => {
                // The recorder behind the pipe has said on this terminal what it has to say.
                if !std::mem::replace(&mut is_begun, true) && !records_here {
                    screen.again()?;
                }
                let status = meter.measure(&snapshot);
                app.take(*snapshot, status)?;
            }
            Ok(Update::Last(snapshot)) => {
                *goes_on = false;
                let status = meter.measure(&snapshot);
                app.ended = true;
                app.take(*snapshot, status)?;
            }
            Ok(Update::TargetsEnded) => *goes_on = false,
            Ok(Update::Stop) => {
                *goes_on = false;
                return Ok(EndedBy::Recording);
            }
            Ok(Update::Failed(why)) => bail!("reading the recording: {why}"),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => *goes_on = false,
        }
    }
}

const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything. Returns the position of the terminal's cursor while the user is typing.
pub fn draw(
    app: &mut App,
    is_colored: bool,
    area: Rect,
    buffer: &mut Buffer,
) -> Option<(u16, u16)> {
    if area.width == 0 || area.height < 3 {
        return None;
    }
    // The state and the last line take one each, and headings stand above the page.
    let height = area.height - 2;
    let headings = u16::try_from(app.heading.len())
        .unwrap_or(0)
        .min(height / 2);
    let height = height - headings;
    if let Err(error) = app.resize(usize::from(area.width), usize::from(height)) {
        app.notes.push(format!("{error:#}"));
    }
    let room = usize::from(area.width);
    let state = match (app.is_alarming(), is_colored) {
        (true, true) => BOLD.fg(Color::Red),
        (true, false) => BOLD,
        _ => Style::new(),
    };
    put(
        buffer,
        area,
        area.y,
        0,
        &shortened(&app.head(), room),
        state,
    );
    for (y, heading) in (area.y + 1..).zip(app.heading.iter().take(usize::from(headings))) {
        put(buffer, area, y, 0, heading, BOLD);
    }
    let body = area.y + 1 + headings;
    let top = (app.cursor + 1).saturating_sub(usize::from(height));
    for (row, (place, line)) in (0..height).zip(app.lines.iter().enumerate().skip(top)) {
        let y = body + row;
        let style = match place == app.cursor {
            true => REVERSED,
            false => heat(line, is_colored),
        };
        buffer.set_style(
            Rect {
                y,
                height: 1,
                ..area
            },
            style,
        );
        put(buffer, area, y, 0, line, style);
    }
    let y = area.bottom() - 1;
    buffer.set_style(
        Rect {
            y,
            height: 1,
            ..area
        },
        REVERSED,
    );
    if let Some(typed) = &app.typed {
        let text = format!("/{}", dioptra_tables::escape(typed));
        let used = put(buffer, area, y, 0, &text, REVERSED);
        return Some((area.x + used.min(area.width - 1), y));
    }
    const HELP: &str = " h: help  q: quit";
    let text_room = room.saturating_sub(HELP.len());
    let used = put(
        buffer,
        area,
        y,
        0,
        &shortened(&app.foot(), text_room),
        REVERSED,
    );
    if usize::from(used) + HELP.len() <= room {
        let right = full_screen::shrunk(area, area.width - HELP.len() as u16);
        put(buffer, right, y, 0, HELP, REVERSED);
    }
    None
}

/// Returns the style of a line that begins with a share: hot ones stand out.
fn heat(line: &str, is_colored: bool) -> Style {
    let share = line.trim_start().split_once('%').map(|(share, _)| share);
    let share: Option<f64> = share.and_then(|share| share.parse().ok());
    match share {
        Some(share) if share >= 20.0 && is_colored => Style::new().fg(Color::Red),
        Some(share) if share >= 5.0 && is_colored => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}
