//! `dioptra trace tui`: a trace in the terminal, to walk through.

mod app;
mod calls_page;
mod chooser;
mod cursor;
mod draw;
mod editor;
mod keys;
mod outline;
mod page;
mod replay_page;
mod report_page;
mod search;
#[cfg(test)]
mod tests;
mod texts;

use super::graph::{self, Lines};
use super::replay::Field;
use super::selected::{Data, Naming, Selected};
use super::{fields, usage};
use crate::exit::Exit;
use crate::full_screen::{self, Screen, Signals};
use app::{App, Browsed, ReportOptions, ScreenAction};
use dioptra_calls::call_tree;
use draw::Look;
use keys::Command;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Arguments of `dioptra trace tui`.
#[derive(clap::Args)]
#[command(after_help = "\
Begins with the graph of all calls; h shows the keys, q quits. O opens $EDITOR where the current function is written.

Fields are those of `dioptra trace graph`, with --report those of `dioptra trace report`.

Examples:
  dioptra trace tui                          the trace in dioptra.trace
  dioptra trace tui --report -F main         the report of what main calls first")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    naming: Naming,
    /// Columns before each line [default: total; with --report total,self,call]
    #[arg(short = 'f', long, value_name = "FIELDS")]
    output_fields: Option<String>,
    /// Begin with the report
    #[arg(long)]
    report: bool,
    /// Sort the report by these keys, the largest first [default: the first field]
    #[arg(short = 's', long, value_name = "KEYS")]
    sort: Option<String>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let fields_text = arguments.output_fields.as_deref();
    let (graph_text, report_text) = match arguments.report {
        true => (None, fields_text),
        false => (fields_text, None),
    };
    let fields = fields::parse(
        graph_text,
        &[graph::Field::Total],
        graph::FIELDS.map(|(name, field, _)| (name, field)),
    )?;
    let options = ReportOptions::parse(report_text, arguments.sort.as_deref())?;
    if !io::stdout().is_terminal() {
        return Err(usage(
            "standard output is no terminal; `dioptra trace graph`, `report` and `replay` write text",
        ));
    }
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view(&names)?;
    let tree = call_tree(&view);
    let lines = Lines::new(&names, &view, fields);
    let browsed = Browsed {
        names: &names,
        view: &view,
        replay_fields: Field::usual(arguments.selected.is_range_elapsed()),
    };
    let mut app = App::new(browsed, tree, lines, options);
    let folder = &trace.info().folder;
    let first = arguments.report.then_some(Command::Report);
    browse(&mut app, first, folder)
}

/// Shows the browser until its user quits.
fn browse(app: &mut App<'_, '_>, first: Option<Command>, folder: &str) -> anyhow::Result<Exit> {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let look = Look { colored: !refused };
    let signals = Signals::new()?;
    let mut screen = Screen::new("`dioptra trace graph` and `report`")?;
    let mut wanted = first.map_or(ScreenAction::Draw, |command| app.take(command));
    loop {
        match std::mem::replace(&mut wanted, ScreenAction::Draw) {
            ScreenAction::Draw => {}
            ScreenAction::Redraw => screen.again()?,
            ScreenAction::Wait(what) => {
                app.message = what.to_owned();
                draw(app, look, &mut screen)?;
                app.message.clear();
                wanted = app.finish();
                continue;
            }
            ScreenAction::Edit(file, line) => {
                let edited = match editor::find(&file, line, folder) {
                    Ok(path) => screen.without(|| editor::edit(&path, line))?,
                    Err(why) => Err(why),
                };
                signals.forget();
                app.message = edited.err().unwrap_or_default();
            }
            ScreenAction::Suspend => {
                screen.without(full_screen::stop)??;
                signals.take_went_on();
            }
            ScreenAction::Interrupt => full_screen::end_by(full_screen::INTERRUPT)?,
            ScreenAction::Quit => return Ok(Exit::Done),
        }
        draw(app, look, &mut screen)?;
        wanted = next(app, &signals)?;
    }
}

fn draw(app: &mut App<'_, '_>, look: Look, screen: &mut Screen) -> io::Result<()> {
    screen.terminal.draw(|frame| {
        let area = frame.area();
        if let Some(cursor) = draw::draw(app, look, area, frame.buffer_mut()) {
            frame.set_cursor_position(cursor);
        }
    })?;
    Ok(())
}

/// Waits for keys and signals, and carries out the keys' commands. All waiting keys are taken before the next drawing.
fn next(app: &mut App<'_, '_>, signals: &Signals) -> anyhow::Result<ScreenAction> {
    /// The time between two looks for signals.
    const WAIT: Duration = Duration::from_millis(100);
    let mut wait = WAIT;
    let mut seen = false;
    loop {
        if let Some(signal) = signals.ending() {
            full_screen::end_by(signal)?;
        }
        if signals.take_stop() {
            return Ok(ScreenAction::Suspend);
        }
        if signals.take_went_on() {
            return Ok(ScreenAction::Redraw);
        }
        if !event::poll(wait)? {
            if seen {
                return Ok(ScreenAction::Draw);
            }
            continue;
        }
        let wanted = match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => press(app, &key),
            _ => ScreenAction::Draw,
        };
        if wanted != ScreenAction::Draw {
            return Ok(wanted);
        }
        seen = true;
        // crossterm does not even look for keys if it has no time.
        wait = Duration::from_millis(1);
    }
}

/// Carries out a key's command.
fn press(app: &mut App<'_, '_>, key: &KeyEvent) -> ScreenAction {
    let command = keys::command(key);
    let is_control = matches!(
        command,
        Some(Command::Interrupt | Command::Suspend | Command::Redraw)
    );
    if let Some(typed) = &mut app.typed
        && !is_control
    {
        match key.code {
            KeyCode::Enter => return app.typed_in(),
            KeyCode::Esc => app.typed = None,
            KeyCode::Backspace if typed.is_empty() => app.typed = None,
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(letter) => typed.push(letter),
            _ => {}
        }
        return ScreenAction::Draw;
    }
    command.map_or(ScreenAction::Draw, |command| app.take(command))
}
