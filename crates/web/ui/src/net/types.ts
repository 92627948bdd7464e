// The types of the server's answers, under the names that the page uses. The server writes src/api/types.ts.

export type {
  CellValue as Cell, EventInfo, ErrorBody, FactAnswer as Fact, FlameAnswer, FunctionAnswer, HeatmapAnswer, ProfileAnswer, OfferedMetric, ProfileStatus as ProfileState,
  RowKeys as RowKey, SourceAnswer, SourceFile, Status, StoredReport, TableAnswer, TableColumn as Column, TableRow as Row, TimelineAnswer,
  TraceAnswer, CallTimelineAnswer, CallLane, ReplayAnswer, ReplayFindAnswer, SlowestAnswer, SlowCall,
} from "../api/types";
