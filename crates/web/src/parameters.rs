//! Reading the parameters of a request from its query.

use crate::api::{
    ChangesRequest, Direction, FlameRequest, Fold, FunctionRequest, HeatmapRequest, Percent,
    ProfileRequest, SearchRequest, SelectionRequest, SourceRequest, StatusRequest, Syntax, TableOf,
    TableRequest, TimelineRequest, TimelineRows, TimelineValue,
};
use crate::failure::Failure;
use std::str::FromStr;

/// Nanoseconds from and to.
type Span = (Option<u64>, Option<u64>);

/// The parameters of one request that were not read yet.
pub(crate) struct Parameters {
    list: Vec<(String, String)>,
}

impl Parameters {
    pub(crate) fn of(query: &str) -> Parameters {
        let pairs = form_urlencoded::parse(query.as_bytes());
        Parameters {
            list: pairs.into_owned().collect(),
        }
    }

    /// All values of a parameter.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        let taken = self.list.extract_if(.., |(known, _)| known == name);
        taken.map(|(_, value)| value).collect()
    }

    /// The value of a parameter that may be given once.
    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let mut values = self.all(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(Failure::parameter(name, "may be given once only")),
        }
    }

    pub(crate) fn number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let value = self.one(name)?;
        let number = value.map(|value| value.parse().ok());
        match number {
            Some(None) => Err(Failure::parameter(name, "is no number, or too large")),
            Some(number) => Ok(number),
            None => Ok(None),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.one(name)?.as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(_) => Err(Failure::parameter(name, "is 0 or 1")),
        }
    }

    /// One of several words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Failure> {
        let Some(value) = self.one(name)? else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| *word == value);
        let known = || {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Failure::parameter(name, format!("is one of {}", words.join(", ")))
        };
        found.map(|(_, meaning)| Some(*meaning)).ok_or_else(known)
    }

    /// `A..B`, either of which may be empty.
    pub(crate) fn span(&mut self, name: &str) -> Result<Option<Span>, Failure> {
        let Some(value) = self.one(name)? else {
            return Ok(None);
        };
        let wrong = || Failure::parameter(name, "is A..B in nanoseconds, either may be empty");
        let (from, to) = value.split_once("..").ok_or_else(wrong)?;
        let end = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong()),
        };
        match (end(from)?, end(to)?) {
            (Some(from), Some(to)) if from >= to => Err(Failure::parameter(
                name,
                "the end must come after the start",
            )),
            (None, None) => Ok(None),
            span => Ok(Some(span)),
        }
    }

    /// Fails if there are parameters that nobody read.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.list.first() {
            Some((name, _)) => {
                let name = dioptra_tables::cut_middle(name, 100);
                Err(Failure::parameter(&name, "is no parameter of this address"))
            }
            None => Ok(()),
        }
    }

    fn selection(&mut self) -> Result<SelectionRequest, Failure> {
        Ok(SelectionRequest {
            profile: self.number("profile")?,
            generation: self.number("generation")?,
            time: self.span("time")?,
            process: self.all("process"),
            thread: self.all("thread"),
            program: self.all("program"),
            comm: self.all("comm"),
            cpu: self.all("cpu"),
            module: self.all("module"),
            function: self.all("function"),
            through: self.all("through"),
            event: self.all("event"),
            inlined: self.flag("inlined")?,
        })
    }

    pub(crate) fn status(mut self) -> Result<StatusRequest, Failure> {
        let wait = self.number("wait")?;
        self.finish()?;
        Ok(StatusRequest { wait })
    }

    pub(crate) fn profile(mut self) -> Result<ProfileRequest, Failure> {
        let profile = self.number("profile")?;
        self.finish()?;
        Ok(ProfileRequest { profile })
    }

    /// The parameters of a table; the caller finishes, since exports have one more.
    pub(crate) fn table(&mut self) -> Result<TableRequest, Failure> {
        Ok(TableRequest {
            selection: self.selection()?,
            by: self.one("by")?,
            children: self.flag("children")?,
            percent: self.word(
                "percent",
                &[
                    ("column", Percent::Column),
                    ("total", Percent::Total),
                    ("row", Percent::Row),
                    ("parent", Percent::Parent),
                ],
            )?,
            errors: self.flag("errors")?,
            few: self.number("few")?,
            slices: self.number("slices")?,
            sort: self.one("sort")?,
            filter: self.one("filter")?.filter(|filter| !filter.is_empty()),
            regex: self.flag("regex")?,
            below: self.number("below")?,
            levels: self.number("levels")?,
            from: self.number("from")?,
            count: self.number("count")?,
            of: self.word(
                "of",
                &[
                    ("report", TableOf::Report),
                    ("diff", TableOf::Diff),
                    ("metrics", TableOf::Metrics),
                ],
            )?,
            metric: self.all("metric"),
            with: self.number("with")?,
            normalize: self.one("normalize")?,
            kernel_apart: self.flag("kernel_apart")?,
        })
    }

    pub(crate) fn search(mut self) -> Result<SearchRequest, Failure> {
        let request = SearchRequest {
            selection: self.selection()?,
            text: self
                .one("text")?
                .ok_or_else(|| Failure::parameter("text", "is missing"))?,
            regex: self.flag("regex")?,
            count: self.number("count")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn flame(mut self) -> Result<FlameRequest, Failure> {
        let request = FlameRequest {
            selection: self.selection()?,
            direction: self.word(
                "direction",
                &[
                    ("callees", Direction::Callees),
                    ("callers", Direction::Callers),
                ],
            )?,
            changes: self.changes()?,
            root: self.number("root")?,
            path: self.all("path"),
            focus: self.one("focus")?,
            metric: self.all("metric"),
            with: self.number("with")?,
            least: self.number("least")?,
            levels: self.number("levels")?,
            count: self.number("count")?,
        };
        self.finish()?;
        Ok(request)
    }

    fn changes(&mut self) -> Result<ChangesRequest, Failure> {
        Ok(ChangesRequest {
            fold: self.word("fold", &[("direct", Fold::Direct), ("all", Fold::All)])?,
            merge: self.all("merge"),
            merge_module: self.all("merge_module"),
            drop: self.all("drop"),
            drop_module: self.all("drop_module"),
        })
    }

    pub(crate) fn function(mut self) -> Result<FunctionRequest, Failure> {
        let request = FunctionRequest {
            selection: self.selection()?,
            syntax: self.word("syntax", &[("att", Syntax::Att), ("intel", Syntax::Intel)])?,
            with: self.number("with")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn source(mut self) -> Result<SourceRequest, Failure> {
        let request = SourceRequest {
            profile: self.number("profile")?,
            file: self
                .one("file")?
                .ok_or_else(|| Failure::parameter("file", "is missing"))?,
            from: self.number("from")?,
            count: self.number("count")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn heatmap(mut self) -> Result<HeatmapRequest, Failure> {
        let request = HeatmapRequest {
            selection: self.selection()?,
            column_ns: self.number("column_ns")?,
            rows: self.number("rows")?,
            span: self.span("span")?,
            value: self.timeline_value()?,
        };
        self.finish()?;
        Ok(request)
    }

    fn timeline_value(&mut self) -> Result<Option<TimelineValue>, Failure> {
        self.word(
            "value",
            &[
                ("samples", TimelineValue::Samples),
                ("weight", TimelineValue::Weight),
            ],
        )
    }

    pub(crate) fn timeline(mut self) -> Result<TimelineRequest, Failure> {
        let request = TimelineRequest {
            selection: self.selection()?,
            rows: self.word(
                "rows",
                &[
                    ("thread", TimelineRows::Thread),
                    ("process", TimelineRows::Process),
                    ("cpu", TimelineRows::Cpu),
                    ("all", TimelineRows::All),
                ],
            )?,
            bins: self.number("bins")?,
            span: self.span("span")?,
            value: self.timeline_value()?,
            from: self.number("from")?,
            count: self.number("count")?,
            with: self.number("with")?,
        };
        self.finish()?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_once_and_none_is_left() {
        let request =
            Parameters::of("time=5..&thread=1&thread=2.2&by=module%2Cfunction&children=1")
                .table()
                .expect("a request");
        assert_eq!(request.selection.time, Some((Some(5), None)));
        assert_eq!(request.selection.thread, ["1", "2.2"]);
        assert_eq!(request.by.as_deref(), Some("module,function"));
        assert!(request.children && !request.regex);
        for wrong in [
            "time=5",
            "time=9..3",
            "time=a..",
            "from=-1",
            "from=99999999999999999999",
            "children=yes",
            "percent=half",
            "by=module&by=function",
        ] {
            let error = Parameters::of(wrong).table().expect_err(wrong);
            assert!(matches!(error, Failure::BadParameter { .. }), "{error}");
        }
        assert!(Parameters::of("wait=1&x=2").status().is_err());
        assert!(Parameters::of("").source().is_err());
    }

    #[test]
    fn hostile_text_is_no_more_than_text() {
        let request = Parameters::of("filter=%3Cscript%3E%00%ff+%26")
            .table()
            .expect("a request");
        assert_eq!(request.filter.as_deref(), Some("<script>\0\u{fffd} &"));
    }
}
