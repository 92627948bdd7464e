//! The browser's state: the page, the cursor, and the effect of each key.

mod captions;

use super::Rows;
use super::status::Status;
use super::tables::{CallersOf, Named, Part, RowOptions, Tables, UnknownColumn, sort};
use crate::screen::is_utf8;
use dioptra_report::{Drawing, RowKey};
use dioptra_tables::{ColumnKind, FittedOptions, ShownRows, Table, write_fitted};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The keys, for the help page.
const HELP: &[(&str, &str)] = &[
    ("Up Down  k j", "move the cursor"),
    ("PageUp PageDown", "move it by a page"),
    ("Home End", "move it to the first or last line"),
    (
        "Enter",
        "what is in this row: functions of a process, thread or module; callers of a function",
    ),
    ("c", "the callers of this function"),
    (
        "a",
        "the code of this function, with the counts of each line and instruction",
    ),
    ("Esc Backspace", "back"),
    ("", ""),
    ("f p t m", "functions, processes, threads, modules"),
    ("e", "the next event"),
    ("w", "callers and code: of all since the start, or of now"),
    (
        "i",
        "callers: with inlined functions, from debug information, or without",
    ),
    ("s", "sort by the next column"),
    (
        "/",
        "show rows only whose names hold a text; capitals count if there are some",
    ),
    ("Space", "pause: the screen stays, the recording goes on"),
    ("r", "look now"),
    ("h ?", "this help"),
    ("q", "quit"),
];

/// The page that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Page {
    Rows { rows: Rows, part: Part, of: String },
    Callers { function: Function },
    Code { function: Function },
    Help,
}

/// A function, in a way that outlasts a snapshot: numbers of functions change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    module: u32,
    start: Option<u64>,
    name: String,
}

/// A wish of the browser's user for whoever owns the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing but to draw.
    Draw,
    /// A new snapshot.
    Look,
    /// Stopping the process, as Ctrl-Z does.
    Suspend,
    /// Drawing everything anew.
    Redraw,
    /// The end.
    Quit,
}

/// The browser.
pub struct App {
    tables: Tables,
    named: Option<Named>,
    status: Status,
    page: Page,
    /// The pages and cursors that Esc leads back to.
    before: Vec<(Page, usize)>,
    /// The place of the chosen event among the sampled ones.
    event: usize,
    of_now: bool,
    /// Whether callers are shown with inlined functions. Such a page stays until its user asks for it again, since
    /// debug information takes a while to read.
    inlined: bool,
    /// The column by which rows are sorted; `None` for the share of now.
    sorted: Option<String>,
    /// Whether `sorted` is what `--sort` says, and no table has shown yet that there is such a column.
    sorted_by_option: bool,
    filter: String,
    /// The filter while it is typed.
    pub typed: Option<String>,
    pub paused: bool,
    /// Whether the recording has ended.
    pub ended: bool,
    pub notes: Vec<String>,
    pub cursor: usize,
    /// The headings above the lines, and the lines.
    pub heading: Vec<String>,
    pub lines: Vec<String>,
    /// By line of a page of rows: the row's key and its name.
    keys: Vec<(RowKey, String)>,
    /// By column of the last table of rows: its id, for sorting.
    columns: Vec<String>,
    message: String,
    /// The width and height of the page in cells.
    size: (usize, usize),
}

impl App {
    pub fn new(tables: Tables, rows: Rows, filter: String, sorted: Option<String>) -> App {
        App {
            sorted_by_option: sorted.is_some(),
            tables,
            named: None,
            status: Status::default(),
            page: Page::Rows {
                rows,
                part: Part::Everything,
                of: String::new(),
            },
            before: Vec::new(),
            event: 0,
            of_now: true,
            inlined: false,
            sorted,
            filter,
            typed: None,
            paused: false,
            ended: false,
            notes: Vec::new(),
            cursor: 0,
            heading: Vec::new(),
            lines: Vec::new(),
            keys: Vec::new(),
            columns: Vec::new(),
            message: String::new(),
            size: (80, 24),
        }
    }

    /// Takes a new snapshot, and makes the page of it.
    pub fn take(
        &mut self,
        snapshot: super::follow::Snapshot,
        status: Status,
    ) -> anyhow::Result<()> {
        let restarted = self
            .named
            .as_ref()
            .is_some_and(|named| named.snapshot.restarts != snapshot.restarts);
        if restarted {
            // Numbers of processes and modules belong to the tables that were given up.
            let top = self.before.drain(..).next();
            if let Some((page, cursor)) = top {
                (self.page, self.cursor) = (page, cursor);
            }
        }
        self.status = status;
        self.named = Some(self.tables.name(snapshot)?);
        // Code takes a while to decode, so it stays until its user asks for it again.
        match self.page {
            Page::Code { .. } | Page::Help => Ok(()),
            Page::Callers { .. } if self.inlined => Ok(()),
            _ => self.refresh(),
        }
    }

    /// Makes the page anew for a screen of this size.
    pub fn resize(&mut self, width: usize, height: usize) -> anyhow::Result<()> {
        if self.size == (width, height) {
            return Ok(());
        }
        self.size = (width, height);
        self.refresh()
    }

    /// Makes the page's lines of the snapshot.
    pub fn refresh(&mut self) -> anyhow::Result<()> {
        if self.page == Page::Help {
            let lines = HELP
                .iter()
                .map(|(keys, effect)| format!("  {keys:<16} {effect}"));
            self.lines = lines.map(|line| line.trim_end().to_owned()).collect();
            self.heading.clear();
            self.keys.clear();
            return Ok(());
        }
        let Some(named) = self.named.take() else {
            return Ok(());
        };
        let made = self.make(&named);
        self.named = Some(named);
        made?;
        self.cursor = self.cursor.min(self.lines.len().saturating_sub(1));
        Ok(())
    }

    fn make(&mut self, named: &Named) -> anyhow::Result<()> {
        let events = named.snapshot.profile.sampled_events();
        let event = events.get(self.event).or(events.first()).copied();
        let Some(event) = event else {
            return Ok(());
        };
        self.keys.clear();
        match self.page.clone() {
            Page::Rows { rows, part, .. } => {
                let options = RowOptions {
                    rows,
                    part: &part,
                    events: &[event],
                    filter: &self.filter,
                };
                let (mut table, keys) = self.tables.rows(named, &options, &self.status)?;
                if let Some(column) = self.sorted.clone()
                    && let Err(error) = sort(&mut table, &column)
                {
                    // The user's own choice is wrong; one of another page's columns is forgotten.
                    if std::mem::take(&mut self.sorted_by_option) && error.is::<UnknownColumn>() {
                        return Err(error);
                    }
                    self.sorted = None;
                }
                self.sorted_by_option = false;
                let shown = table
                    .columns
                    .iter()
                    .filter(|column| column.kind != ColumnKind::Name || column.id == rows_id(rows));
                self.columns = shown.map(|column| column.id.clone()).collect();
                let name = table.column_index(rows_id(rows));
                for row in table.rows() {
                    let name = name.map(|column| match row.cell(column) {
                        dioptra_tables::Cell::Name(name) => name.into_owned(),
                        _ => String::new(),
                    });
                    if let Some(key) = keys.get(row.id() as usize) {
                        self.keys.push((*key, name.unwrap_or_default()));
                    }
                }
                self.show(table)
            }
            Page::Callers { function } => {
                let number = number_of(named, &function);
                let tree = match number {
                    Some(number) => {
                        let how = CallersOf {
                            now: self.of_now,
                            inlined: self.inlined,
                        };
                        self.tables.callers(named, number, event, how)?
                    }
                    None => None,
                };
                match tree.filter(|tree| !tree.is_empty()) {
                    Some(tree) => self.show(tree),
                    None => {
                        self.say_nothing(&function);
                        Ok(())
                    }
                }
            }
            Page::Code { function } => {
                let drawing = if is_utf8() {
                    Drawing::Unicode
                } else {
                    Drawing::Ascii
                };
                let style = (self.size.0, drawing);
                let lines = match number_of(named, &function) {
                    Some(number) => self.tables.code(named, number, self.of_now, style)?,
                    None => None,
                };
                self.heading.clear();
                match lines {
                    Some(lines) => self.lines = lines,
                    None => self.say_nothing(&function),
                }
                Ok(())
            }
            Page::Help => Ok(()),
        }
    }

    fn say_nothing(&mut self, function: &Function) {
        self.heading.clear();
        let when = if self.of_now { " now; w shows all" } else { "" };
        self.lines = vec![format!("{} has no samples{when}", function.name)];
    }

    /// Makes lines of a table.
    fn show(&mut self, mut table: Table) -> anyhow::Result<()> {
        table.facts = dioptra_tables::Facts::new();
        let options = FittedOptions {
            width: self.size.0,
            rows: ShownRows::All,
            errors: false,
            color: false,
            unicode: is_utf8(),
            sorted_by: None,
        };
        let mut text = Vec::new();
        write_fitted(&table, &options, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().filter(|line| !line.starts_with("# "));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        // Each row has a line, and the lines above them are headings.
        self.lines = lines.split_off(lines.len().saturating_sub(table.len()));
        self.heading = lines;
        Ok(())
    }

    /// Carries out a key's command.
    pub fn press(&mut self, key: &KeyEvent) -> anyhow::Result<Wish> {
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return Ok(match key.code {
                KeyCode::Char('c') => Wish::Quit,
                KeyCode::Char('z') => Wish::Suspend,
                KeyCode::Char('l') => Wish::Redraw,
                _ => Wish::Draw,
            });
        }
        if let Some(typed) = &mut self.typed {
            match key.code {
                KeyCode::Enter => {
                    self.filter = self.typed.take().unwrap_or_default();
                    self.cursor = 0;
                    self.refresh()?;
                }
                KeyCode::Esc => self.typed = None,
                KeyCode::Backspace => {
                    typed.pop();
                }
                KeyCode::Char(letter) => typed.push(letter),
                _ => {}
            }
            return Ok(Wish::Draw);
        }
        let last = self.lines.len().saturating_sub(1);
        let page = self.size.1.max(1);
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.cursor = (self.cursor + 1).min(last),
            KeyCode::PageUp => self.cursor = self.cursor.saturating_sub(page),
            KeyCode::PageDown => self.cursor = (self.cursor + page).min(last),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = last,
            KeyCode::Enter => self.enter()?,
            KeyCode::Esc | KeyCode::Backspace => self.back()?,
            KeyCode::Char(letter) => return self.letter(letter),
            _ => {}
        }
        Ok(Wish::Draw)
    }

    fn letter(&mut self, letter: char) -> anyhow::Result<Wish> {
        match letter {
            'q' => return Ok(Wish::Quit),
            ' ' => {
                self.paused = !self.paused;
                return Ok(if self.paused { Wish::Draw } else { Wish::Look });
            }
            'r' => {
                self.refresh()?;
                return Ok(Wish::Look);
            }
            'f' => self.show_rows(Rows::Function)?,
            'p' => self.show_rows(Rows::Process)?,
            't' => self.show_rows(Rows::Thread)?,
            'm' => self.show_rows(Rows::Module)?,
            'c' => match self.function() {
                Some(function) => self.go(Page::Callers { function })?,
                None => self.message = "no function in this line".to_owned(),
            },
            'a' => match self.function() {
                Some(function) => self.go(Page::Code { function })?,
                None => self.message = "no function in this line".to_owned(),
            },
            'e' => {
                let named = self.named.as_ref();
                let count = named.map_or(0, |named| named.snapshot.profile.sampled_events().len());
                self.event = (self.event + 1) % count.max(1);
                self.refresh()?;
            }
            'w' => {
                self.of_now = !self.of_now;
                self.refresh()?;
            }
            'i' => {
                self.inlined = !self.inlined;
                if !matches!(self.page, Page::Callers { .. }) {
                    self.message = match self.inlined {
                        true => "callers are shown with inlined functions".to_owned(),
                        false => "callers are shown without inlined functions".to_owned(),
                    };
                }
                self.refresh()?;
            }
            's' => {
                let at = self.sorted.as_ref();
                let at = at.and_then(|at| self.columns.iter().position(|column| column == at));
                let next = at.map_or(1, |at| at + 1);
                self.sorted = self.columns.get(next).cloned();
                self.cursor = 0;
                self.refresh()?;
            }
            '/' => self.typed = Some(self.filter.clone()),
            'h' | '?' if self.page != Page::Help => self.go(Page::Help)?,
            _ => {}
        }
        Ok(Wish::Draw)
    }

    /// Shows what is in the current row.
    fn enter(&mut self) -> anyhow::Result<()> {
        let Page::Rows { rows, .. } = &self.page else {
            return Ok(());
        };
        if *rows == Rows::Function {
            return match self.function() {
                Some(function) => self.go(Page::Callers { function }),
                None => Ok(()),
            };
        }
        let Some((key, name)) = self.keys.get(self.cursor) else {
            return Ok(());
        };
        let part = match rows {
            Rows::Process => Part::Process(key.key),
            Rows::Thread => Part::Thread(key.key),
            Rows::Module | Rows::Function => Part::Module(key.key),
        };
        let page = Page::Rows {
            rows: Rows::Function,
            part,
            of: name.clone(),
        };
        self.go(page)
    }

    /// Returns the function of the current line, or of the page.
    fn function(&self) -> Option<Function> {
        match &self.page {
            Page::Rows {
                rows: Rows::Function,
                ..
            } => {
                let (key, _) = self.keys.get(self.cursor)?;
                let names = &self.named.as_ref()?.names;
                let function = names.functions().get(key.key as usize)?;
                Some(Function {
                    module: function.module,
                    start: function.start,
                    name: function.name.clone(),
                })
            }
            Page::Callers { function } | Page::Code { function } => Some(function.clone()),
            _ => None,
        }
    }

    fn show_rows(&mut self, rows: Rows) -> anyhow::Result<()> {
        self.before.clear();
        self.cursor = 0;
        self.sorted = None;
        self.page = Page::Rows {
            rows,
            part: Part::Everything,
            of: String::new(),
        };
        self.refresh()
    }

    fn go(&mut self, page: Page) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.page, page);
        self.before.push((before, self.cursor));
        self.cursor = 0;
        self.refresh()
    }

    fn back(&mut self) -> anyhow::Result<()> {
        match self.before.pop() {
            Some((page, cursor)) => (self.page, self.cursor) = (page, cursor),
            None => self.filter.clear(),
        }
        self.refresh()
    }
}

/// Returns the id of the column that names rows.
fn rows_id(rows: Rows) -> &'static str {
    match rows {
        Rows::Function => "function",
        Rows::Process => "process",
        Rows::Thread => "thread",
        Rows::Module => "module",
    }
}

/// Returns the number of a function in the names of a snapshot.
fn number_of(named: &Named, wanted: &Function) -> Option<u32> {
    let functions = named.names.functions().iter();
    let found = functions.zip(0_u32..).find(|(function, _)| {
        function.module == wanted.module
            && function.start == wanted.start
            && function.name == wanted.name
    });
    found.map(|(_, number)| number)
}
