//! Reading the parameters of requests about traces.

use crate::api::{
    CallGraphRequest, CallRows, CallSelection, CallTableRequest, CallTimelineRequest, CallWeight,
    ReplayFindRequest, ReplayRequest, SlowestRequest, TraceRequest,
};
use crate::failure::Failure;
use crate::parameters::Parameters;

impl Parameters {
    fn call_selection(&mut self) -> Result<CallSelection, Failure> {
        Ok(CallSelection {
            profile: self.number("profile")?,
            generation: self.number("generation")?,
            time: self.span("time")?,
            process: self.all("process"),
            thread: self.all("thread"),
        })
    }

    fn needed(&mut self, name: &str) -> Result<String, Failure> {
        let value = self.one(name)?;
        value.ok_or_else(|| Failure::parameter(name, "is missing"))
    }

    pub(crate) fn trace(mut self) -> Result<TraceRequest, Failure> {
        let profile = self.number("profile")?;
        self.finish()?;
        Ok(TraceRequest { profile })
    }

    /// The parameters of a table; the caller finishes, since exports have one more.
    pub(crate) fn call_table(&mut self) -> Result<CallTableRequest, Failure> {
        Ok(CallTableRequest {
            selection: self.call_selection()?,
            by: self.word(
                "by",
                &[
                    ("function", CallRows::Function),
                    ("thread", CallRows::Thread),
                ],
            )?,
            sort: self.one("sort")?,
            filter: self.one("filter")?.filter(|filter| !filter.is_empty()),
            regex: self.flag("regex")?,
            from: self.number("from")?,
            count: self.number("count")?,
        })
    }

    pub(crate) fn call_graph(mut self) -> Result<CallGraphRequest, Failure> {
        let request = CallGraphRequest {
            selection: self.call_selection()?,
            weight: self.word(
                "weight",
                &[("time", CallWeight::Time), ("calls", CallWeight::Calls)],
            )?,
            root: self.number("root")?,
            focus: self.one("focus")?,
            least: self.number("least")?,
            levels: self.number("levels")?,
            count: self.number("count")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn call_timeline(mut self) -> Result<CallTimelineRequest, Failure> {
        let request = CallTimelineRequest {
            selection: self.call_selection()?,
            span: self.span("span")?,
            pixels: self.number("pixels")?,
            depth: self.number("depth")?,
            from: self.number("from")?,
            count: self.number("count")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn replay(mut self) -> Result<ReplayRequest, Failure> {
        let request = ReplayRequest {
            selection: self.call_selection()?,
            from: self.number("from")?,
            count: self.number("count")?,
            at: self.number("at")?,
            preview: self.flag("preview")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn replay_find(mut self) -> Result<ReplayFindRequest, Failure> {
        let request = ReplayFindRequest {
            selection: self.call_selection()?,
            text: self.needed("text")?,
            regex: self.flag("regex")?,
            from: self.number("from")?,
        };
        self.finish()?;
        Ok(request)
    }

    pub(crate) fn slowest(mut self) -> Result<SlowestRequest, Failure> {
        let request = SlowestRequest {
            selection: self.call_selection()?,
            function: self.needed("function")?,
            count: self.number("count")?,
        };
        self.finish()?;
        Ok(request)
    }
}
