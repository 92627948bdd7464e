//! The browser's state, and the effect of each command on it.

use super::calls_page::CallsPage;
use super::chooser::Chooser;
use super::keys::Command;
use super::page::{Page, TextPage};
use super::replay_page::ReplayPage;
use super::report_page::ReportPage;
use super::search::Query;
use super::texts;
use crate::commands::trace::graph::{self, Lines};
use crate::commands::trace::replay::{self, replay_facts};
use crate::commands::trace::report::{self, fields};
use crate::commands::trace::usage;
use dioptra_calls::{CallPathTree, FunctionNames, StatisticsOptions, View, statistics_with};
use dioptra_filters::MatchStyle;
use dioptra_tables::{Facts, Severity, escape};

/// The trace that is browsed.
#[derive(Clone, Copy)]
pub struct Browsed<'v, 't> {
    pub names: &'v FunctionNames<'t>,
    pub view: &'v View<'t>,
    /// The columns before the lines of a replay.
    pub replay_fields: &'v [replay::Field],
}

/// The page on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Graph,
    Around,
    Report,
    Replay,
    Text,
}

/// A request of a command to the owner of the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// Draws what has changed.
    Draw,
    /// Draws the whole screen anew.
    Redraw,
    /// Shows this text while [`App::finish`] does the command, which takes time.
    Wait(&'static str),
    /// Opens an editor at this line of a file.
    Edit(String, u32),
    /// Stops the browser, as Ctrl-Z does.
    Suspend,
    /// Ends the browser, as SIGINT does.
    Interrupt,
    Quit,
}

/// The columns and the order of the report.
pub struct ReportOptions {
    pub fields: Vec<fields::Field>,
    pub keys: Vec<fields::Key>,
}

/// The browser.
pub struct App<'v, 't> {
    browsed: Browsed<'v, 't>,
    pub lines: Lines<'v, 't>,
    graph: CallsPage,
    around: Option<CallsPage>,
    report: Option<ReportPage>,
    report_options: ReportOptions,
    replay: Option<ReplayPage<'v, 't>>,
    text: TextPage,
    mode: Mode,
    before: Vec<Mode>,
    graph_facts: Facts,
    report_facts: Facts,
    replay_facts: Facts,
    /// The text that is being typed, if the user is typing.
    pub typed: Option<String>,
    pub chooser: Option<Chooser>,
    query: Option<Query>,
    /// The message that is shown until the next command.
    pub message: String,
    pending: Option<Command>,
    /// The lines and columns of a page on the screen.
    pub screen: (usize, usize),
}

impl<'v, 't> App<'v, 't> {
    /// Makes the browser of a trace; `tree` has the sums of its calls.
    pub fn new(
        browsed: Browsed<'v, 't>,
        tree: CallPathTree,
        mut lines: Lines<'v, 't>,
        report_options: ReportOptions,
    ) -> App<'v, 't> {
        // Missing names are known only after all names were looked up.
        for node in tree.nodes() {
            lines.labels.get(node.function);
        }
        let mut facts = graph::graph_facts(browsed.view, browsed.names, &tree);
        add_warnings(browsed.view, &mut facts);
        App {
            graph: CallsPage::whole(tree, &graph::program(browsed.view)),
            around: None,
            report: None,
            replay: None,
            report_options,
            text: TextPage::new("help", Vec::new()),
            mode: Mode::Graph,
            before: Vec::new(),
            graph_facts: facts,
            report_facts: Facts::new(),
            replay_facts: Facts::new(),
            typed: None,
            chooser: None,
            query: None,
            message: String::new(),
            pending: None,
            screen: (1, 1),
            browsed,
            lines,
        }
    }

    /// Returns the page on the screen, and the writer of lines.
    pub fn page(&mut self) -> (&mut dyn Page, &mut Lines<'v, 't>) {
        let page: &mut dyn Page = match self.mode {
            Mode::Graph => &mut self.graph,
            Mode::Around => self.around.as_mut().unwrap_or(&mut self.graph),
            Mode::Report => match &mut self.report {
                Some(report) => report,
                None => &mut self.graph,
            },
            Mode::Replay => match &mut self.replay {
                Some(replay) => replay,
                None => &mut self.graph,
            },
            Mode::Text => &mut self.text,
        };
        (page, &mut self.lines)
    }

    /// Returns the graph on the screen, if there is one.
    fn calls(&mut self) -> Option<(&mut CallsPage, &Lines<'v, 't>)> {
        match self.mode {
            Mode::Graph => Some((&mut self.graph, &self.lines)),
            Mode::Around => Some((self.around.as_mut()?, &self.lines)),
            _ => None,
        }
    }

    /// Returns the diagnostics of the page's numbers, the most severe ones first.
    pub fn facts(&self) -> Vec<String> {
        let mut list: Vec<_> = self.known().iter().collect();
        list.sort_by_key(|fact| std::cmp::Reverse(fact.severity));
        let text = |fact: &dioptra_tables::Fact| match fact.severity {
            Severity::Info => escape(&fact.text),
            severity => format!("{}: {}", severity.word(), escape(&fact.text)),
        };
        list.into_iter().map(text).collect()
    }

    fn known(&self) -> &Facts {
        match self.mode {
            Mode::Report => &self.report_facts,
            Mode::Replay => &self.replay_facts,
            _ => &self.graph_facts,
        }
    }

    /// Returns whether a diagnostic is a warning or a loss.
    pub fn is_alarming(&self) -> bool {
        let mut facts = self.known().iter();
        facts.any(|fact| fact.severity > Severity::Info)
    }

    fn open(&mut self, mode: Mode) {
        if mode != self.mode {
            self.before.retain(|before| *before != mode);
            self.before.push(self.mode);
            self.mode = mode;
        }
    }

    fn back(&mut self) {
        if let Some(mode) = self.before.pop() {
            self.mode = mode;
        }
    }

    /// Returns the function of the current line.
    fn function(&mut self) -> Option<u32> {
        let (page, _) = self.page();
        let at = page.cursor().at;
        page.function(at)
    }

    /// Carries out a command.
    pub fn take(&mut self, command: Command) -> ScreenAction {
        self.message.clear();
        match command {
            Command::Interrupt => return ScreenAction::Interrupt,
            Command::Suspend => return ScreenAction::Suspend,
            Command::Redraw => return ScreenAction::Redraw,
            _ => {}
        }
        if let Some(chooser) = &mut self.chooser {
            if chooser.take(command) {
                self.choose();
            }
            return ScreenAction::Draw;
        }
        let is_calls = self.calls().is_some();
        match command {
            Command::Quit if self.mode == Mode::Text && self.text.title() == "help" => self.back(),
            Command::Quit => return ScreenAction::Quit,
            Command::Up => self.step(-1),
            Command::Down => self.step(1),
            Command::PageUp => self.step(-self.page_step()),
            Command::PageDown => self.step(self.page_step()),
            Command::First => self.step(isize::MIN),
            Command::Last => self.step(isize::MAX),
            Command::Left => self.page().0.cursor().scroll(-8),
            Command::Right => self.page().0.cursor().scroll(8),
            Command::Center => {
                let height = self.screen.0;
                self.page().0.cursor().center(height);
            }
            Command::Enter if self.mode == Mode::Report => return self.take(Command::Around),
            Command::Enter
            | Command::CollapseChildren
            | Command::ExpandChildren
            | Command::CollapseAll
            | Command::ExpandAll
            | Command::Parent
            | Command::Longest => self.walk(command),
            Command::Next | Command::Previous if is_calls => self.walk(command),
            Command::Next | Command::NextMatch => return self.search(true, false),
            Command::Previous | Command::PreviousMatch => return self.search(false, false),
            Command::Search => self.typed = Some(String::new()),
            Command::Graph => self.open(Mode::Graph),
            Command::Around => self.around(),
            Command::Report | Command::ReportHere => {
                self.pending = Some(command);
                if self.report.is_none() {
                    return ScreenAction::Wait("summing up the calls of each function…");
                }
                return self.finish();
            }
            Command::Replay => self.replay(),
            Command::Info => {
                let Browsed { names, view, .. } = self.browsed;
                self.show_text("info", texts::info(self.facts(), view.trace(), names));
            }
            Command::Tasks => {
                let trace = self.browsed.view.trace();
                self.show_text("processes and threads", texts::tasks(trace));
            }
            Command::Help => self.show_text("help", texts::help()),
            Command::Edit => {
                self.pending = Some(command);
                return ScreenAction::Wait("looking for the source line…");
            }
            Command::Sort => match (&mut self.report, self.mode) {
                (Some(report), Mode::Report) => report.sort_by_next(),
                _ => self.message = "s sorts the report: R shows it".to_owned(),
            },
            Command::Fields => self.fields(),
            Command::Back => self.back(),
            Command::Interrupt | Command::Suspend | Command::Redraw => {}
        }
        ScreenAction::Draw
    }

    /// Carries out the command that takes time, after [`ScreenAction::Wait`].
    pub fn finish(&mut self) -> ScreenAction {
        match self.pending.take() {
            Some(Command::Report) => {
                self.make_report();
                self.open(Mode::Report);
            }
            Some(Command::ReportHere) => {
                let function = self.function();
                self.make_report();
                self.open(Mode::Report);
                if let (Some(function), Some(report)) = (function, &mut self.report)
                    && !report.go(function, self.browsed.names.get(function))
                {
                    self.message = "the report has no row for that function".to_owned();
                }
                self.reveal();
            }
            Some(Command::Edit) => {
                let Some(function) = self.function() else {
                    self.message = "this line is about no function".to_owned();
                    return ScreenAction::Draw;
                };
                match self.browsed.names.sources(&[function]).pop().flatten() {
                    Some((file, line)) => return ScreenAction::Edit(file, line),
                    None => {
                        let name = self.lines.labels.get(function);
                        self.message =
                            format!("no debug information tells where {name} is written");
                    }
                }
            }
            _ => {}
        }
        ScreenAction::Draw
    }

    /// Returns a screenful of lines, less one.
    fn page_step(&self) -> isize {
        self.screen.0.saturating_sub(1).max(1) as isize
    }

    fn step(&mut self, lines: isize) {
        let height = self.screen.0;
        let (page, _) = self.page();
        page.cursor().step(lines);
        let wanted = page.cursor().at.saturating_add(1);
        page.read(wanted);
        let count = page.count();
        page.cursor().fit(count, height);
        self.reveal();
    }

    /// Scrolls to the side if the current line's name is not on the screen.
    fn reveal(&mut self) {
        let width = self.screen.1;
        self.page().0.show_column(width);
    }

    fn walk(&mut self, command: Command) {
        let Some((page, lines)) = self.calls() else {
            self.message = "this goes with graphs: G or g shows one".to_owned();
            return;
        };
        let done = page.walk(command, lines);
        if !done {
            self.message = match command {
                Command::Next | Command::Previous => "no more calls of this caller",
                Command::Parent => "nothing above",
                Command::Longest => "nothing below",
                _ => "this line is not of the graph",
            }
            .to_owned();
        }
        self.reveal();
    }

    /// Searches for the typed text.
    pub fn typed_in(&mut self) -> ScreenAction {
        let Some(text) = self.typed.take() else {
            return ScreenAction::Draw;
        };
        // As in other programs, an empty text repeats the last search.
        if let Some(query) = Query::new(&text) {
            self.query = Some(query);
        }
        self.search(true, true)
    }

    fn search(&mut self, forward: bool, inclusive: bool) -> ScreenAction {
        let Some(query) = self.query.take() else {
            self.message = "nothing is searched for: type / and a part of a name".to_owned();
            return ScreenAction::Draw;
        };
        let (page, lines) = self.page();
        let found = page.find(&query, forward, inclusive, lines);
        self.message = match found {
            Some((place, number, of)) => {
                page.cursor().at = place;
                format!("/{}: match {number} of {of}", escape(query.text()))
            }
            None => format!("/{}: no match", escape(query.text())),
        };
        self.query = Some(query);
        self.reveal();
        ScreenAction::Draw
    }

    fn around(&mut self) {
        let Some(function) = self.function() else {
            self.message = "this line is about no function".to_owned();
            return;
        };
        let name = self.browsed.names.get(function);
        let mut wanted = self.browsed.names.matching(name, MatchStyle::Simple);
        if let Some(wanted) = wanted.get_mut(function as usize) {
            *wanted = true;
        }
        let page = CallsPage::around(self.graph.tree(), &escape(name), &wanted, &mut self.lines);
        self.around = Some(page);
        self.open(Mode::Around);
        self.reveal();
    }

    fn make_report(&mut self) {
        if self.report.is_some() {
            return;
        }
        let Browsed { names, view, .. } = self.browsed;
        // Any field can be chosen later.
        let sums = statistics_with(
            view,
            StatisticsOptions {
                distributions: true,
                ..StatisticsOptions::default()
            },
        );
        let mut rows = report::rows(&sums, names, view, false);
        dioptra_trace_report::tell_apart(&mut rows, names);
        self.report_facts = report::report_facts(view, names, &sums, &rows);
        add_warnings(view, &mut self.report_facts);
        let options = &mut self.report_options;
        let fields = std::mem::take(&mut options.fields);
        let keys = std::mem::take(&mut options.keys);
        self.report = Some(ReportPage::new(rows, fields, keys));
    }

    fn replay(&mut self) {
        if self.replay.is_none() {
            let Browsed {
                names,
                view,
                replay_fields,
            } = self.browsed;
            self.replay = Some(ReplayPage::new(view, names, replay_fields));
            self.replay_facts = replay_facts(view, names, &self.graph.tree().losses);
            add_warnings(view, &mut self.replay_facts);
        }
        self.open(Mode::Replay);
    }

    fn show_text(&mut self, title: &str, lines: Vec<String>) {
        self.text = TextPage::new(title, lines);
        self.open(Mode::Text);
    }

    fn fields(&mut self) {
        let shown = &self.lines.fields;
        self.chooser = match (self.mode, &self.report) {
            (Mode::Text | Mode::Replay, _) => {
                self.message = "f chooses the fields of the graph or the report".to_owned();
                None
            }
            (Mode::Report, Some(report)) => {
                let shown = report.fields();
                let known = fields::FIELDS.iter();
                let items = known.map(|(name, field, ..)| (*name, shown.contains(field)));
                Some(Chooser::new(items.collect()))
            }
            _ => {
                let known = graph::FIELDS.iter();
                let items = known.map(|(name, field, _)| (*name, shown.contains(field)));
                Some(Chooser::new(items.collect()))
            }
        };
    }

    /// Shows the chosen fields.
    fn choose(&mut self) {
        let Some(chooser) = self.chooser.take() else {
            return;
        };
        let chosen = |name: &str| chooser.items().contains(&(name, true));
        if let (Mode::Report, Some(report)) = (self.mode, &mut self.report) {
            let known = fields::FIELDS.iter().filter(|(name, ..)| chosen(name));
            report.set_fields(known.map(|(_, field, ..)| *field).collect());
        } else {
            let known = graph::FIELDS.iter().filter(|(name, ..)| chosen(name));
            self.lines.fields = known.map(|(_, field, _)| *field).collect();
        }
    }
}

/// Adds the warnings about rules, which came before there was a screen.
fn add_warnings(view: &View<'_>, facts: &mut Facts) {
    for warning in view.warnings() {
        facts.add(Severity::Warning, "rules", warning.to_string(), true);
    }
}

impl ReportOptions {
    /// Parses the arguments as `report` does.
    pub fn parse(output: Option<&str>, sort: Option<&str>) -> anyhow::Result<ReportOptions> {
        let which = fields::Average::None;
        let fields = fields::fields(output, which)?;
        let keys = fields::keys(sort, which).map_err(usage)?;
        Ok(ReportOptions { fields, keys })
    }
}
