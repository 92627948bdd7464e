//! The types of requests and answers, which the page shares: `typescript` writes them for its side.

mod changes;
mod error;
mod flame;
mod function;
mod heatmap;
mod profile;
mod requests;
mod status;
mod stored;
mod table;
mod timeline;
mod trace;

pub use changes::{ChangesRequest, FlameChanges, Fold};
pub use error::{ErrorAnswer, ErrorBody};
pub use flame::{
    FlameAbove, FlameAnswer, FlameEvent, FlameFunction, FlameLeftOut, FlameMetric, FlameModule,
    FlameModuleKind, FlameNew, FlameNodes, FlameOther,
};
pub use function::{
    CodeBlock, CodeEdge, CodeFrames, CodeInstructions, CodeLine, CodeLoop, CodeTarget, Counted,
    FunctionAnswer, FunctionEvent, FunctionInfo, FunctionModule, FunctionOther, OtherEvent,
    OtherInstructions, OtherLines, SourceAnswer, SourceFile,
};
pub use heatmap::{HeatmapAnswer, HeatmapRequest};
pub use profile::{
    EventInfo, MachineInfo, OfferedMetric, ProfileAnswer, ProfileCounts, ProfileHas,
};
pub use requests::{
    Direction, FlameRequest, FunctionRequest, Percent, ProfileRequest, SearchRequest,
    SelectionRequest, SourceRequest, StatusRequest, Syntax, TableOf, TableRequest, TimelineRequest,
    TimelineRows, TimelineValue,
};
pub use status::{FileKind, ProfileStatus, Progress, State, Status};
pub use stored::StoredReport;
pub use table::{
    CellValue, FactAnswer, RowKeys, SearchAnswer, SearchHit, SearchKind, SortedBy, TableAnswer,
    TableColumn, TableRow,
};
pub use timeline::{TimelineAnswer, TimelineEvent, TimelineOther, TimelineOtherRow, TimelineRow};
pub use trace::{
    CallBars, CallGraphRequest, CallLane, CallRows, CallSelection, CallTableRequest,
    CallTimelineAnswer, CallTimelineRequest, CallWeight, ReplayAnswer, ReplayFindAnswer,
    ReplayFindRequest, ReplayKind, ReplayRequest, ReplayRow, SlowCall, SlowestAnswer,
    SlowestRequest, TraceAnswer, TraceCount, TraceModule, TraceProcess, TraceRequest, TraceThread,
};

use ts_rs::{Config, TS};

/// Returns one type as a TypeScript declaration.
fn declare<T: TS>(config: &Config, text: &mut String) {
    if let Some(docs) = T::docs() {
        text.push_str(&docs);
    }
    text.push_str("export ");
    text.push_str(&T::decl(config));
    text.push_str("\n\n");
}

/// Returns all types as one TypeScript file: `ui/src/api/types.ts`.
pub fn typescript() -> String {
    // Numbers beyond 2^53 lose their last digits in a browser, which shows fewer digits anyway.
    let config = Config::new().with_large_int("number");
    let mut text = String::from(
        "// Written by the tests of dioptra-web from the types in crates/web/src/api. Do not edit.\n\n",
    );
    macro_rules! declare_all {
        ($($name:ty),* $(,)?) => { $( declare::<$name>(&config, &mut text); )* };
    }
    declare_all!(
        ErrorAnswer,
        ErrorBody,
        StatusRequest,
        Status,
        ProfileStatus,
        FileKind,
        State,
        Progress,
        ProfileRequest,
        ProfileAnswer,
        MachineInfo,
        EventInfo,
        ProfileHas,
        OfferedMetric,
        ProfileCounts,
        FactAnswer,
        SelectionRequest,
        TableRequest,
        Percent,
        TableOf,
        TableAnswer,
        TableColumn,
        TableRow,
        CellValue,
        RowKeys,
        SortedBy,
        SearchRequest,
        SearchAnswer,
        SearchHit,
        SearchKind,
        ChangesRequest,
        Fold,
        FlameRequest,
        Direction,
        FlameAnswer,
        FlameChanges,
        FlameMetric,
        FlameEvent,
        FlameFunction,
        FlameModule,
        FlameModuleKind,
        FlameAbove,
        FlameNodes,
        FlameLeftOut,
        FlameOther,
        FlameNew,
        FunctionRequest,
        Syntax,
        FunctionAnswer,
        FunctionOther,
        OtherEvent,
        OtherLines,
        OtherInstructions,
        FunctionInfo,
        FunctionModule,
        FunctionEvent,
        Counted,
        CodeFrames,
        CodeInstructions,
        CodeTarget,
        CodeBlock,
        CodeEdge,
        CodeLoop,
        CodeLine,
        SourceFile,
        SourceRequest,
        SourceAnswer,
        TimelineRequest,
        TimelineRows,
        TimelineValue,
        TimelineAnswer,
        TimelineEvent,
        TimelineRow,
        TimelineOther,
        TimelineOtherRow,
        StoredReport,
        CallSelection,
        TraceRequest,
        TraceAnswer,
        TraceProcess,
        TraceThread,
        TraceModule,
        TraceCount,
        CallTableRequest,
        CallRows,
        CallGraphRequest,
        CallWeight,
        CallTimelineRequest,
        CallTimelineAnswer,
        CallLane,
        CallBars,
        ReplayRequest,
        ReplayAnswer,
        ReplayRow,
        ReplayKind,
        ReplayFindRequest,
        ReplayFindAnswer,
        SlowestRequest,
        SlowestAnswer,
        SlowCall,
        HeatmapRequest,
        HeatmapAnswer,
    );
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
