// Written by the tests of dioptra-web from the types in crates/web/src/api. Do not edit.

/**
 * The answer to a request that failed.
 */
export type ErrorAnswer = { 
/**
 * The error.
 */
error: ErrorBody, };

/**
 * An error with its remedy.
 */
export type ErrorBody = { 
/**
 * A short, stable name for programs, such as `no_such_function`.
 */
code: string, 
/**
 * The error as a sentence.
 */
text: string, 
/**
 * The action that helps.
 */
remedy: string | null, };

/**
 * Parameters of `/api/status`.
 */
export type StatusRequest = { 
/**
 * The answer comes when the revision differs from this one.
 */
wait?: number, };

/**
 * The answer of `/api/status`.
 */
export type Status = { 
/**
 * The version of dioptra.
 */
version: string, 
/**
 * A number that rises whenever anything below changes.
 */
revision: number, 
/**
 * The profiles in the order of the command line.
 */
profiles: Array<ProfileStatus>, };

/**
 * The state of one profile.
 */
export type ProfileStatus = { 
/**
 * The index by which requests name the profile.
 */
index: number, 
/**
 * The file's name without its folder.
 */
label: string, 
/**
 * The file as it was given.
 */
path: string, 
/**
 * Whether the file is a profile or a trace.
 */
kind: FileKind, 
/**
 * The number of times the file was loaded; 0 before the first time is over.
 */
generation: number, 
/**
 * The state of the generation that answers.
 */
state: State, 
/**
 * Whether the file has changed and is being loaded again.
 */
reloading: boolean, 
/**
 * The progress of loading, as far as it is known.
 */
progress: Progress | null, 
/**
 * The milliseconds that loading has taken so far, or took.
 */
elapsed_ms: number, 
/**
 * Why the file could not be loaded the last time.
 */
error: ErrorBody | null, };

/**
 * The kind of a file.
 */
export type FileKind = "profile" | "trace";

/**
 * The state of a profile.
 */
export type State = "waiting" | "reading" | "naming" | "ready" | "failed";

/**
 * The progress of a piece of work.
 */
export type Progress = { 
/**
 * The part that is done.
 */
done: number, 
/**
 * All there is to do.
 */
total: number, 
/**
 * The unit of both numbers.
 */
unit: string, };

/**
 * Parameters of `/api/profile`.
 */
export type ProfileRequest = { 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, };

/**
 * The answer of `/api/profile`.
 */
export type ProfileAnswer = { 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The file's name without its folder.
 */
label: string, 
/**
 * The file as it was given.
 */
path: string, 
/**
 * The file's size.
 */
size_bytes: number, 
/**
 * The machine that was recorded.
 */
machine: MachineInfo, 
/**
 * The recorder's command line, a word each.
 */
command_line: Array<string>, 
/**
 * The recorder's version.
 */
recorder: string | null, 
/**
 * Nanoseconds from the first sample to the last one.
 */
duration_ns: number | null, 
/**
 * Nanoseconds of the recording's clock at the first sample.
 */
first_time_ns: number | null, 
/**
 * All events.
 */
events: Array<EventInfo>, 
/**
 * The keys of the events that get columns when a request names none.
 */
default_events: Array<string>, 
/**
 * The kinds of data that the recording has.
 */
has: ProfileHas, 
/**
 * The numbers of processes, threads and so on.
 */
counts: ProfileCounts, 
/**
 * The metrics that the recorded events make, of the sets for the recorded CPU.
 */
metrics: Array<OfferedMetric>, 
/**
 * The metrics that tables show unless the reader chooses others.
 */
default_metrics: Array<string>, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * The machine that was recorded, as far as the file tells.
 */
export type MachineInfo = { 
/**
 * Its name.
 */
hostname: string | null, 
/**
 * Its kernel's release.
 */
os_release: string | null, 
/**
 * Its architecture.
 */
arch: string | null, 
/**
 * Its CPU.
 */
cpu: string | null, 
/**
 * The number of CPUs that were online.
 */
cpus_online: number | null, 
/**
 * Its memory in KiB.
 */
memory_kib: number | null, };

/**
 * An event of the recording.
 */
export type EventInfo = { 
/**
 * The key by which requests name it.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * The unit of its weights: `ns` or `events`; none where a sample does not state for how many events it stands.
 */
unit: string | null, 
/**
 * All its samples.
 */
samples: number, 
/**
 * The sum of their periods.
 */
weight: number, 
/**
 * Whether its samples hold call chains.
 */
has_chains: boolean, 
/**
 * Whether its counter shared a hardware counter, so that estimates are scaled.
 */
is_scaled: boolean, 
/**
 * Whether tables show it unless told otherwise.
 */
sampled: boolean, };

/**
 * The kinds of data that a recording has.
 */
export type ProfileHas = { 
/**
 * Call chains.
 */
chains: boolean, 
/**
 * The time of each sample.
 */
times: boolean, 
/**
 * The CPU of each sample.
 */
cpus: boolean, 
/**
 * Branch records.
 */
branches: boolean, 
/**
 * Memory samples.
 */
memory: boolean, 
/**
 * Windows of counters.
 */
windows: boolean, };

/**
 * A metric that the recorded events make.
 */
export type OfferedMetric = { 
/**
 * The name by which requests ask for it: `SET:METRIC`.
 */
name: string, 
/**
 * The set's name.
 */
set: string, 
/**
 * The heading of its column.
 */
title: string, 
/**
 * Its meaning.
 */
description: string, 
/**
 * The number of columns under which it folds.
 */
depth: number, };

/**
 * The numbers of things that a recording has.
 */
export type ProfileCounts = { 
/**
 * Processes.
 */
processes: number, 
/**
 * Threads.
 */
threads: number, 
/**
 * Modules.
 */
modules: number, 
/**
 * Functions on call chains.
 */
functions: number, 
/**
 * CPUs that have samples.
 */
cpus: number, };

/**
 * A loss, fallback, guess or limit.
 */
export type FactAnswer = { 
/**
 * A short name, unique in its list.
 */
id: string, 
/**
 * `info`, `fallback`, `warning` or `loss`.
 */
severity: string, 
/**
 * The fact as a sentence, with its remedy.
 */
text: string, 
/**
 * The fact as a number, text or object.
 */
value: unknown, };

/**
 * The parameters that choose samples, the same for all tables and pictures. Conditions of different parameters must all
 * hold; of the values of one parameter any.
 */
export type SelectionRequest = { 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, };

/**
 * Parameters of `/api/table` and, with a format, of `/api/export`.
 */
export type TableRequest = { 
/**
 * The levels of rows, divided by commas: program, process, thread, comm, cpu, socket, module, function, block, line,
 * instruction, time.
 */
by?: string, 
/**
 * `1`: totals too.
 */
children?: 0 | 1, 
/**
 * The whole of percentages.
 */
percent?: Percent, 
/**
 * `1`: standard errors too.
 */
errors?: 0 | 1, 
/**
 * Shares that rest on fewer samples are marked.
 */
few?: number, 
/**
 * The number of slices of time.
 */
slices?: number, 
/**
 * `COLUMN`, `COLUMN:asc` or `COLUMN:desc`.
 */
sort?: string, 
/**
 * The text that a row's name must contain.
 */
filter?: string, 
/**
 * `1`: the filter is a regular expression.
 */
regex?: 0 | 1, 
/**
 * Only the rows directly below this one.
 */
below?: number, 
/**
 * The number of levels that are shown.
 */
levels?: number, 
/**
 * The place of the first row.
 */
from?: number, 
/**
 * The number of rows at most.
 */
count?: number, 
/**
 * The kind of table.
 */
of?: TableOf, 
/**
 * Derived columns: names of metrics, of sets, or `SET:METRIC`.
 */
metric?: Array<string>, 
/**
 * The index of a profile that is compared: with `of=diff` its changes are shown, with `of=report` its counts beside
 * these.
 */
with?: number, 
/**
 * With `of=diff`: the quantity by which weights are divided: `none`, `time`, or an event's key.
 */
normalize?: string, 
/**
 * With `of=metrics`: `1` gives functions of the kernel rows of their own.
 */
kernel_apart?: 0 | 1, 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, };

/**
 * The whole of a percentage.
 */
export type Percent = "column" | "total" | "row" | "parent";

/**
 * The kind of a table.
 */
export type TableOf = "report" | "diff" | "metrics";

/**
 * The answer of `/api/table`: a range of rows of a table of `dioptra report`.
 */
export type TableAnswer = { 
/**
 * The version of the table's shape.
 */
schema: number, 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The columns.
 */
columns: Array<TableColumn>, 
/**
 * The rows of the range.
 */
rows: Array<TableRow>, 
/**
 * The place of the first of these rows among all that pass the filter.
 */
from: number, 
/**
 * The number of rows without the filter.
 */
total_rows: number, 
/**
 * The number of rows that pass it.
 */
matching_rows: number, 
/**
 * By column: the sum of the top rows that pass the filter; null where a sum means nothing.
 */
totals: Array<CellValue>, 
/**
 * The column by which the rows were sorted as the request asked; null for the table's own order.
 */
sorted_by: SortedBy | null, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * A column.
 */
export type TableColumn = { 
/**
 * Short, stable and unique in the table.
 */
id: string, 
/**
 * The heading.
 */
name: string, 
/**
 * `events`, `samples`, `percent`, `per_thousand`, `ns`, `bytes`, any other unit's symbol, or null.
 */
unit: string | null, 
/**
 * `count`, `weight`, `ratio`, `time`, `address` or `name`.
 */
kind: string, 
/**
 * The event that the column is about.
 */
event: string | null, 
/**
 * The id of the column that this one breaks down.
 */
parent: string | null, 
/**
 * Whether only programs read it.
 */
for_programs: boolean, };

/**
 * A row.
 */
export type TableRow = { 
/**
 * A number that is unique in the table.
 */
id: number, 
/**
 * The row above.
 */
parent: number | null, 
/**
 * The number of rows above it.
 */
depth: number, 
/**
 * The number of rows directly below it.
 */
below: number, 
/**
 * The values of selection parameters that select the row.
 */
key: RowKeys, 
/**
 * A value for each column.
 */
cells: Array<CellValue>, 
/**
 * By column: one standard error of the value.
 */
standard_errors?: { [key in string]: number }, 
/**
 * By column: what to think of the value.
 */
notes?: { [key in string]: string }, 
/**
 * Whether a name was so long that its middle was left out.
 */
cut?: boolean, };

/**
 * A value of a cell.
 */
export type CellValue = number | number | number | string | null;

/**
 * Values of selection parameters.
 */
export type RowKeys = { 
/**
 * A program.
 */
program?: string, 
/**
 * A process.
 */
process?: string, 
/**
 * A thread.
 */
thread?: string, 
/**
 * A name of threads.
 */
comm?: string, 
/**
 * A CPU.
 */
cpu?: string, 
/**
 * A module.
 */
module?: string, 
/**
 * A function.
 */
function?: string, 
/**
 * A range of time, in nanoseconds since the first sample.
 */
time?: [number, number], };

/**
 * The order of rows.
 */
export type SortedBy = { 
/**
 * The column's id.
 */
column: string, 
/**
 * `asc` or `desc`.
 */
direction: string, };

/**
 * Parameters of `/api/search`.
 */
export type SearchRequest = { 
/**
 * The text that a name must contain.
 */
text: string, 
/**
 * `1`: the text is a regular expression.
 */
regex?: 0 | 1, 
/**
 * The number of hits of each kind at most.
 */
count?: number, 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, };

/**
 * The answer of `/api/search`.
 */
export type SearchAnswer = { 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The things whose names match, those of each kind by falling share.
 */
hits: Array<SearchHit>, 
/**
 * The number of all things whose names match.
 */
total: number, };

/**
 * A thing whose name matches.
 */
export type SearchHit = { 
/**
 * The kind of the thing.
 */
kind: SearchKind, 
/**
 * The values of selection parameters that select it.
 */
key: RowKeys, 
/**
 * Its name.
 */
name: string, 
/**
 * A function's module, a thread's process.
 */
inside: string | null, 
/**
 * Its share of the first event, in percent.
 */
percent: number | null, };

/**
 * The kind of a thing that was found.
 */
export type SearchKind = "function" | "module" | "process" | "thread";

/**
 * The parameters that change call stacks.
 */
export type ChangesRequest = { 
/**
 * The treatment of functions that call themselves.
 */
fold?: Fold, 
/**
 * Keys of functions that are left out. What they called stands below their callers.
 */
merge?: Array<string>, 
/**
 * Keys of modules whose functions are left out in the same way.
 */
merge_module?: Array<string>, 
/**
 * Keys of functions whose samples do not count, whether in them or in what they called.
 */
drop?: Array<string>, 
/**
 * Keys of modules whose functions' samples do not count in the same way.
 */
drop_module?: Array<string>, };

/**
 * The treatment of functions that call themselves.
 */
export type Fold = "direct" | "all";

/**
 * Parameters of `/api/flame`.
 */
export type FlameRequest = { 
/**
 * The functions that stand below a function.
 */
direction?: Direction, 
/**
 * The number of a node: only what is below it.
 */
root?: number, 
/**
 * The same by the keys of functions: the node's and those above it, the top one first. A path that leads nowhere is
 * followed as far as it goes.
 */
path?: Array<string>, 
/**
 * The key of the function with which trees begin.
 */
focus?: string, 
/**
 * Derived columns whose values nodes have: names of metrics, of sets, or `SET:METRIC`.
 */
metric?: Array<string>, 
/**
 * The index of a profile with which nodes are compared.
 */
with?: number, 
/**
 * Nodes with less than this many ten-thousandths of the root's weight are left out.
 */
least?: number, 
/**
 * The number of levels below the root.
 */
levels?: number, 
/**
 * The number of nodes at most.
 */
count?: number, 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, 
/**
 * The treatment of functions that call themselves.
 */
fold?: Fold, 
/**
 * Keys of functions that are left out. What they called stands below their callers.
 */
merge?: Array<string>, 
/**
 * Keys of modules whose functions are left out in the same way.
 */
merge_module?: Array<string>, 
/**
 * Keys of functions whose samples do not count, whether in them or in what they called.
 */
drop?: Array<string>, 
/**
 * Keys of modules whose functions' samples do not count in the same way.
 */
drop_module?: Array<string>, };

/**
 * The functions that stand below a function in a tree.
 */
export type Direction = "callees" | "callers";

/**
 * The answer of `/api/flame`.
 */
export type FlameAnswer = { 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The functions that stand below a function.
 */
direction: Direction, 
/**
 * The events, in the order of all counts.
 */
events: Array<FlameEvent>, 
/**
 * The functions of the nodes.
 */
functions: Array<FlameFunction>, 
/**
 * Their modules.
 */
modules: Array<FlameModule>, 
/**
 * With a root: the nodes above it, the outermost first.
 */
above: Array<FlameAbove>, 
/**
 * The nodes.
 */
nodes: FlameNodes, 
/**
 * The nodes that were left out because they are too light or too deep.
 */
left_out: FlameLeftOut, 
/**
 * The samples that changed stacks take out of the tree, if there are any.
 */
changes?: FlameChanges, 
/**
 * The number of nodes of the whole tree.
 */
total_nodes: number, 
/**
 * With `metric`: the metrics of nodes with everything below them.
 */
metrics?: Array<FlameMetric>, 
/**
 * With `with`: the weights of the same nodes in the other profile.
 */
other?: FlameOther, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * The samples that changed stacks take out of a tree, by event.
 */
export type FlameChanges = { 
/**
 * The samples that were dropped.
 */
dropped_samples: Array<number>, 
/**
 * The sum of their periods.
 */
dropped_weight: Array<number>, 
/**
 * The samples whose functions were all left out, so that no node has them.
 */
bare_samples: Array<number>, 
/**
 * The sum of their periods.
 */
bare_weight: Array<number>, };

/**
 * A metric of the nodes of a tree.
 */
export type FlameMetric = { 
/**
 * Its name in its set.
 */
name: string, 
/**
 * The heading of its column in tables.
 */
title: string, 
/**
 * Its unit.
 */
unit: string | null, 
/**
 * Its value for all selected samples; null where it is not defined.
 */
whole: number | null, 
/**
 * By node: the value for the node and everything below it; null where it is not defined.
 */
values: Array<number | null>, 
/**
 * By node: one standard error of the value.
 */
errors: Array<number | null>, 
/**
 * By node: 1 if the value rests on so few samples that chance may have made it.
 */
few: Array<number>, };

/**
 * An event of a tree.
 */
export type FlameEvent = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * The unit of its weights.
 */
unit: string | null, 
/**
 * The selection's samples.
 */
samples: number, 
/**
 * The sum of their periods.
 */
weight: number, };

/**
 * A function of a tree.
 */
export type FlameFunction = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * Its module, as an index.
 */
module: number, 
/**
 * Whether it stands for code that the compiler put into its caller.
 */
inlined: boolean, };

/**
 * A module of a tree.
 */
export type FlameModule = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * The kind of its code.
 */
kind: FlameModuleKind, };

/**
 * The kind of a module's code.
 */
export type FlameModuleKind = "file" | "kernel" | "vdso" | "jit" | "unknown";

/**
 * A node above the root.
 */
export type FlameAbove = { 
/**
 * The node's number.
 */
id: number, 
/**
 * Its function, as an index.
 */
function: number, };

/**
 * Nodes as parallel lists. A node stands behind its parent and before its parent's next child; the heaviest child of a
 * node comes first.
 */
export type FlameNodes = { 
/**
 * The numbers by which requests name nodes.
 */
id: Array<number>, 
/**
 * The place of each node's parent in these lists; -1 for top nodes.
 */
parent: Array<number>, 
/**
 * The function, as an index.
 */
function: Array<number>, 
/**
 * The number of children in the whole tree.
 */
below: Array<number>, 
/**
 * By event: the weight at the function itself.
 */
own: Array<Array<number>>, 
/**
 * By event: the weight of all samples that pass through the node.
 */
total: Array<Array<number>>, 
/**
 * By event: the samples at the function itself.
 */
own_samples: Array<Array<number>>, 
/**
 * By event: all samples that pass through the node.
 */
total_samples: Array<Array<number>>, };

/**
 * The nodes that a tree leaves out.
 */
export type FlameLeftOut = { 
/**
 * The number of nodes.
 */
nodes: number, 
/**
 * The weight of the first event in these nodes, counted once.
 */
weight: number, };

/**
 * The weights of a tree's nodes in another profile. A node there is the same if the names of all functions from the top to
 * it are.
 */
export type FlameOther = { 
/**
 * The other profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * By event: the other profile's whole weight; null where it has no such event.
 */
weight: Array<number | null>, 
/**
 * By event, then node: the weight of all samples that pass through the node.
 */
total: Array<Array<number>>, 
/**
 * By event, then node: the number of these samples.
 */
total_samples: Array<Array<number>>, 
/**
 * The heaviest paths that only the other profile has, the heaviest first, at most 1000.
 */
new: Array<FlameNew>, 
/**
 * The weight of the first event in paths that only the other profile has.
 */
new_weight: number, };

/**
 * A node that only the other profile has, below a node that both have.
 */
export type FlameNew = { 
/**
 * The place in the answer's lists of the node under which it stands; -1 at the top.
 */
parent: number, 
/**
 * The function's name.
 */
name: string, 
/**
 * The name of its module.
 */
module: string, 
/**
 * The weight of the first event.
 */
weight: number, };

/**
 * Parameters of `/api/function`. The selection's `function` is the one to show.
 */
export type FunctionRequest = { 
/**
 * The syntax of x86 instructions.
 */
syntax?: Syntax, 
/**
 * The index of a profile with which lines and instructions are compared.
 */
with?: number, 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, };

/**
 * The syntax of x86 instructions.
 */
export type Syntax = "att" | "intel";

/**
 * The answer of `/api/function`.
 */
export type FunctionAnswer = { 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The function.
 */
function: FunctionInfo, 
/**
 * The events, in the order of all counts.
 */
events: Array<FunctionEvent>, 
/**
 * Whether there are instructions; else they are the addresses that have samples.
 */
has_code: boolean, 
/**
 * Texts to which lists refer by index.
 */
strings: Array<string>, 
/**
 * Functions and lines, each once.
 */
frames: CodeFrames, 
/**
 * Stacks of frames, the innermost first; all but the last are inlined.
 */
stacks: Array<Array<number>>, 
/**
 * The instructions by rising address.
 */
instructions: CodeInstructions, 
/**
 * Where instructions lead.
 */
targets: Array<CodeTarget>, 
/**
 * The basic blocks by rising address.
 */
blocks: Array<CodeBlock>, 
/**
 * The ways between blocks.
 */
edges: Array<CodeEdge>, 
/**
 * The loops, each behind the one around it.
 */
loops: Array<CodeLoop>, 
/**
 * The source files.
 */
files: Array<SourceFile>, 
/**
 * The source lines, by file and line.
 */
lines: Array<CodeLine>, 
/**
 * The number of indirect jumps whose targets are unknown.
 */
unresolved_jumps: number, 
/**
 * The counts in the profile that is compared.
 */
other?: FunctionOther, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * The counts of a function in another profile.
 */
export type FunctionOther = { 
/**
 * The other profile's index.
 */
profile: number, 
/**
 * Its generation.
 */
generation: number, 
/**
 * The number of its functions that are this one; 0 if it has no samples of it.
 */
functions: number, 
/**
 * By event: its sums there; null where the other profile lacks the event.
 */
events: Array<OtherEvent | null>, 
/**
 * The lines of the answer, as the other profile counts them.
 */
lines: OtherLines, 
/**
 * The instructions of the answer, as the other profile counts them; null where the code is not the same.
 */
instructions: OtherInstructions | null, 
/**
 * Why instructions are not compared.
 */
instructions_why: string | null, };

/**
 * An event in the other profile.
 */
export type OtherEvent = { 
/**
 * All selected samples.
 */
total: Counted, 
/**
 * The samples in the function itself.
 */
own: Counted, };

/**
 * Counts of lines in the other profile.
 */
export type OtherLines = { 
/**
 * By event, then line of the answer: samples of instructions that were made from it.
 */
samples: Array<Array<number>>, 
/**
 * By event, then line: the sum of their periods.
 */
weight: Array<Array<number>>, 
/**
 * By event, then line: samples of instructions to which it led, by inlined calls too.
 */
outer_samples: Array<Array<number>>, 
/**
 * By event, then line: the sum of their periods.
 */
outer_weight: Array<Array<number>>, 
/**
 * By event: samples at lines that only the other profile has.
 */
only_there_samples: Array<number>, 
/**
 * By event: the sum of their periods.
 */
only_there_weight: Array<number>, };

/**
 * Counts of instructions in the other profile.
 */
export type OtherInstructions = { 
/**
 * By event, then instruction of the answer: samples.
 */
samples: Array<Array<number>>, 
/**
 * By event, then instruction: the sum of their periods.
 */
weight: Array<Array<number>>, };

/**
 * Which function it is.
 */
export type FunctionInfo = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * Its name as linkers see it.
 */
raw_name: string, 
/**
 * Its module.
 */
module: FunctionModule, 
/**
 * Its first relative address.
 */
start: string | null, 
/**
 * The first address behind it.
 */
end: string | null, 
/**
 * Its first address as objdump shows it.
 */
virtual_start: string | null, };

/**
 * A function's module.
 */
export type FunctionModule = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name in tables.
 */
name: string, 
/**
 * Its recorded path.
 */
path: string, };

/**
 * An event, and the function's part of it.
 */
export type FunctionEvent = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * The unit of its weights.
 */
unit: string | null, 
/**
 * Whether estimates are scaled for the time in which the event was not counted.
 */
scaled: boolean, 
/**
 * All selected samples.
 */
total: Counted, 
/**
 * The samples in the function itself.
 */
own: Counted, };

/**
 * A count of samples.
 */
export type Counted = { 
/**
 * Samples.
 */
samples: number, 
/**
 * The sum of their periods.
 */
weight: number, 
/**
 * The same, scaled.
 */
estimate: number, 
/**
 * One standard error of the estimate.
 */
error: number, };

/**
 * Functions and lines as parallel lists.
 */
export type CodeFrames = { 
/**
 * The function, as an index of the texts; -1 if it is not known.
 */
function: Array<number>, 
/**
 * The source file, as an index; -1 if it is not known.
 */
file: Array<number>, 
/**
 * The line from 1; 0 if it is not known.
 */
line: Array<number>, 
/**
 * The column from 1; 0 if it is not known.
 */
column: Array<number>, 
/**
 * 1 if the compiler put the function into its caller, which is the next frame.
 */
inlined: Array<number>, };

/**
 * Instructions as parallel lists.
 */
export type CodeInstructions = { 
/**
 * The relative address.
 */
address: Array<string>, 
/**
 * The address that objdump shows.
 */
virtual_address: Array<string>, 
/**
 * The bytes in hexadecimal digits.
 */
bytes: Array<string>, 
/**
 * The instruction.
 */
text: Array<string>, 
/**
 * The effect on the flow of control, as an index of the texts; -1 without code.
 */
kind: Array<number>, 
/**
 * Its block; -1 if it has none.
 */
block: Array<number>, 
/**
 * Its stack of frames; -1 if nothing is known.
 */
stack: Array<number>, 
/**
 * By event, then instruction: samples.
 */
samples: Array<Array<number>>, 
/**
 * By event, then instruction: the sum of their periods.
 */
weight: Array<Array<number>>, 
/**
 * By event, then instruction: the same, scaled.
 */
estimate: Array<Array<number>>, 
/**
 * By event, then instruction: one standard error of the estimate.
 */
error: Array<Array<number>>, };

/**
 * Where an instruction leads.
 */
export type CodeTarget = { 
/**
 * The instruction, as an index.
 */
instruction: number, 
/**
 * The instruction to which it leads, if that is one of this function.
 */
to: number | null, 
/**
 * The address to which it leads, as objdump shows it.
 */
virtual_address: string, 
/**
 * The function to which it leads.
 */
function: string | null, 
/**
 * The distance from that function's start.
 */
offset: number | null, 
/**
 * That function's key, if the profile knows it.
 */
key: string | null, };

/**
 * A basic block.
 */
export type CodeBlock = { 
/**
 * Its first instruction.
 */
first: number, 
/**
 * The number of its instructions.
 */
count: number, 
/**
 * The innermost loop around it.
 */
loop: number | null, 
/**
 * The number of loops around it.
 */
depth: number, 
/**
 * By event.
 */
samples: Array<number>, 
/**
 * By event.
 */
weight: Array<number>, 
/**
 * By event.
 */
estimate: Array<number>, };

/**
 * A way from one block to another, or out of the function.
 */
export type CodeEdge = { 
/**
 * The block that it leaves.
 */
from: number, 
/**
 * The block to which it leads.
 */
to: number | null, 
/**
 * The relative address outside of the function to which it leads.
 */
outside: string | null, 
/**
 * The function to which it leads.
 */
function: string | null, 
/**
 * `fall_through`, `taken`, `jump`, `call_return`, `table`, `indirect` or `leave`.
 */
kind: string, 
/**
 * The number of times it was taken, where branch records tell.
 */
executions: number | null, };

/**
 * A loop.
 */
export type CodeLoop = { 
/**
 * The block at which it is entered.
 */
header: number, 
/**
 * The loop around it.
 */
parent: number | null, 
/**
 * The number of loops around it, with itself.
 */
depth: number, 
/**
 * Its blocks.
 */
blocks: Array<number>, 
/**
 * By event.
 */
samples: Array<number>, 
/**
 * By event.
 */
weight: Array<number>, 
/**
 * The mean number of iterations for each entry, where branch records tell.
 */
trips: number | null, 
/**
 * One standard error of that.
 */
trips_error: number | null, };

/**
 * A source line.
 */
export type CodeLine = { 
/**
 * The file, as an index; -1 for all instructions whose line is not known.
 */
file: number, 
/**
 * The line from 1; 0 if it is not known.
 */
line: number, 
/**
 * Whether instructions were made from it, or only inlined calls lead through it.
 */
has_code: boolean, 
/**
 * By event: samples of instructions that were made from it.
 */
samples: Array<number>, 
/**
 * By event: the sum of their periods.
 */
weight: Array<number>, 
/**
 * By event: samples of instructions to which it led, by inlined calls too.
 */
outer_samples: Array<number>, 
/**
 * By event: the sum of their periods.
 */
outer_weight: Array<number>, };

/**
 * A source file.
 */
export type SourceFile = { 
/**
 * The id by which `/api/source` gives its text.
 */
id: string, 
/**
 * Its recorded path.
 */
path: string, 
/**
 * Whether it was found.
 */
found: boolean, 
/**
 * The path where it was found.
 */
found_at: string | null, 
/**
 * The number of its lines.
 */
lines: number, 
/**
 * Whether it was changed after the program was built.
 */
newer: boolean, 
/**
 * Where it was looked for, and why it is not there.
 */
why: string | null, };

/**
 * Parameters of `/api/source`.
 */
export type SourceRequest = { 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The id of a file that an answer of `/api/function` named.
 */
file: string, 
/**
 * The first line, from 1.
 */
from?: number, 
/**
 * The number of lines at most.
 */
count?: number, };

/**
 * The answer of `/api/source`.
 */
export type SourceAnswer = { 
/**
 * The file.
 */
file: SourceFile, 
/**
 * The first line of the answer, from 1.
 */
from: number, 
/**
 * The number of all lines.
 */
total_lines: number, 
/**
 * The lines.
 */
lines: Array<string>, };

/**
 * Parameters of `/api/timeline`.
 */
export type TimelineRequest = { 
/**
 * The kind of the rows.
 */
rows?: TimelineRows, 
/**
 * The number of bins.
 */
bins?: number, 
/**
 * `A..B`: what the bins cover, in nanoseconds since the first sample; either may be empty.
 */
span?: string, 
/**
 * The kind of the values.
 */
value?: TimelineValue, 
/**
 * The place of the first row.
 */
from?: number, 
/**
 * The number of rows at most.
 */
count?: number, 
/**
 * The index of a profile whose rows are given, too.
 */
with?: number, 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, };

/**
 * The kind of a timeline's rows.
 */
export type TimelineRows = "thread" | "process" | "cpu" | "all";

/**
 * The kind of a timeline's values.
 */
export type TimelineValue = "samples" | "weight";

/**
 * The answer of `/api/timeline`.
 */
export type TimelineAnswer = { 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The event that is counted.
 */
event: TimelineEvent, 
/**
 * Where the first bin begins.
 */
start_ns: number, 
/**
 * Where the last bin ends.
 */
end_ns: number, 
/**
 * The width of a bin.
 */
bin_ns: number, 
/**
 * The number of bins.
 */
bins: number, 
/**
 * The rows of the range, the heaviest first.
 */
rows: Array<TimelineRow>, 
/**
 * The number of all rows.
 */
total_rows: number, 
/**
 * The largest value of one bin in these rows.
 */
peak: number, 
/**
 * The number of samples without a time.
 */
untimed: number, 
/**
 * The profile that is compared.
 */
other?: TimelineOther, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * The event of a timeline.
 */
export type TimelineEvent = { 
/**
 * Its key.
 */
key: string, 
/**
 * Its name.
 */
name: string, 
/**
 * The unit of its weights.
 */
unit: string | null, };

/**
 * A row of a timeline.
 */
export type TimelineRow = { 
/**
 * The values of selection parameters that select the row.
 */
key: RowKeys, 
/**
 * The name of the thread or process, or what else the row is.
 */
name: string, 
/**
 * The number of the thread, process or CPU.
 */
number: number | null, 
/**
 * A thread's process.
 */
process_name?: string, 
/**
 * All samples in the bins.
 */
samples: number, 
/**
 * The sum of their periods.
 */
weight: number, 
/**
 * The time of the first of these samples.
 */
first_ns: number, 
/**
 * The time of the last one.
 */
last_ns: number, 
/**
 * By bin.
 */
values: Array<number>, 
/**
 * The same row in the profile that is compared; absent where it has none.
 */
other?: TimelineOtherRow, 
/**
 * By bin: the part of it, in thousandths, that the thread was off the CPU, or that the CPU idled. Absent where no
 * switches were recorded.
 */
off?: Array<number>, };

/**
 * The profile that is compared in a timeline. Its bins are those of the answer, from its own first sample on.
 */
export type TimelineOther = { 
/**
 * Its index.
 */
profile: number, 
/**
 * Its generation.
 */
generation: number, 
/**
 * Where it ends.
 */
end_ns: number, 
/**
 * Its samples in the bins.
 */
samples: number, 
/**
 * The number of its rows that are no row of the first profile.
 */
unmatched_rows: number, 
/**
 * Their samples.
 */
unmatched_samples: number, 
/**
 * The largest value of one bin in the rows of the answer.
 */
peak: number, };

/**
 * A row in the profile that is compared.
 */
export type TimelineOtherRow = { 
/**
 * The name of the thread or process there.
 */
name: string, 
/**
 * The number of the thread, process or CPU there.
 */
number: number | null, 
/**
 * All samples in the bins.
 */
samples: number, 
/**
 * The sum of their periods.
 */
weight: number, 
/**
 * By bin.
 */
values: Array<number>, };

/**
 * The answers that a static report stores, and what a reader must know about them.
 */
export type StoredReport = { 
/**
 * The version of dioptra that wrote the report.
 */
version: string, 
/**
 * Seconds since 1970 when it was written.
 */
written: number, 
/**
 * True if the text of source files is stored.
 */
has_source: boolean, 
/**
 * Sentences about what the report holds.
 */
holds: Array<string>, 
/**
 * Sentences about what the report leaves out.
 */
lacks: Array<string>, 
/**
 * The answers: JSON in gzip in base64, by the request that the page makes, such as `table?by=function&profile=0`.
 * Parameters that the page applies itself are not part of the request.
 */
answers: { [key in string]: string }, };

/**
 * The parameters that choose calls. Conditions of different parameters must all hold; of the values of one parameter any.
 */
export type CallSelection = { 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * Parameters of `/api/trace`.
 */
export type TraceRequest = { 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, };

/**
 * The answer of `/api/trace`: what a trace holds.
 */
export type TraceAnswer = { 
/**
 * The trace's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The directory's name.
 */
label: string, 
/**
 * The directory as it was given.
 */
path: string, 
/**
 * The size of the records.
 */
size_bytes: number, 
/**
 * The machine that was recorded.
 */
machine: MachineInfo, 
/**
 * The traced command, a word each.
 */
command_line: Array<string>, 
/**
 * The recording's options, a word each.
 */
options: Array<string>, 
/**
 * The recorder's version.
 */
recorder: string, 
/**
 * Nanoseconds from the first record to the last one.
 */
duration_ns: number, 
/**
 * The clock's nanoseconds (`CLOCK_MONOTONIC`) at the first record.
 */
first_time_ns: number, 
/**
 * The clock of the records: `tsc` or `monotonic`.
 */
clock: string, 
/**
 * Whether the length of the clock's ticks is unknown: all times are in ticks then.
 */
ticks: boolean, 
/**
 * The end of the command, as far as it is known.
 */
ending: string, 
/**
 * Rules of the recording that are applied now: option and text.
 */
rules: Array<string>, 
/**
 * The number of functions whose calls could be recorded.
 */
functions: number, 
/**
 * The number of context switches.
 */
switches: number, 
/**
 * The processes, in the order in which they began.
 */
processes: Array<TraceProcess>, 
/**
 * The threads.
 */
threads: Array<TraceThread>, 
/**
 * The modules, and how their functions are traced.
 */
modules: Array<TraceModule>, 
/**
 * Functions of which only chosen executions were recorded.
 */
sampled: number, 
/**
 * The recorder's notes.
 */
notes: Array<string>, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * A traced process image.
 */
export type TraceProcess = { 
/**
 * The key by which requests name it.
 */
key: string, 
/**
 * Its number.
 */
pid: number, 
/**
 * Its parent's number.
 */
parent: number, 
/**
 * `exec` or `fork`.
 */
cause: string, 
/**
 * Its executable.
 */
executable: string, 
/**
 * Nanoseconds since the first record; 0 if it began before.
 */
begin_ns: number, };

/**
 * A traced thread.
 */
export type TraceThread = { 
/**
 * The values of selection parameters that select it.
 */
key: RowKeys, 
/**
 * Its name.
 */
name: string, 
/**
 * Its number.
 */
tid: number, 
/**
 * Its process's number.
 */
pid: number, 
/**
 * The bytes of its records.
 */
bytes: number, 
/**
 * The number of records that are known to be missing.
 */
lost: number, };

/**
 * A traced module.
 */
export type TraceModule = { 
/**
 * Its path.
 */
path: string, 
/**
 * Its build id in hexadecimal digits; empty if it has none.
 */
build_id: string, 
/**
 * The number of its functions whose calls could be recorded.
 */
functions: number, 
/**
 * The ways in which calls are found, with the number of functions of each.
 */
methods: Array<TraceCount>, 
/**
 * The reasons why functions could not be traced, with the number of functions of each.
 */
refused: Array<TraceCount>, };

/**
 * A number of functions.
 */
export type TraceCount = { 
/**
 * The kind.
 */
name: string, 
/**
 * The number of functions.
 */
count: number, };

/**
 * Parameters of `/api/trace/table` and, with a format, of `/api/trace/export`.
 */
export type CallTableRequest = { 
/**
 * The kind of the rows.
 */
by?: CallRows, 
/**
 * `COLUMN`, `COLUMN:asc` or `COLUMN:desc`.
 */
sort?: string, 
/**
 * The text that a row's name must contain.
 */
filter?: string, 
/**
 * `1`: the filter is a regular expression.
 */
regex?: 0 | 1, 
/**
 * The place of the first row.
 */
from?: number, 
/**
 * The number of rows at most.
 */
count?: number, 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * The kind of a table's rows.
 */
export type CallRows = "function" | "thread";

/**
 * Parameters of `/api/trace/graph`.
 */
export type CallGraphRequest = { 
/**
 * The weight of a node.
 */
weight?: CallWeight, 
/**
 * The number of a node: only what is below it.
 */
root?: number, 
/**
 * The key of the function with which paths begin.
 */
focus?: string, 
/**
 * Nodes with less than this many ten-thousandths of the root's weight are left out.
 */
least?: number, 
/**
 * The number of levels below the root.
 */
levels?: number, 
/**
 * The number of nodes at most.
 */
count?: number, 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * The weight of a node of the call graph.
 */
export type CallWeight = "time" | "calls";

/**
 * Parameters of `/api/trace/timeline`.
 */
export type CallTimelineRequest = { 
/**
 * `A..B`: the time that is drawn; either may be empty. It takes the place of the selection's time.
 */
span?: string, 
/**
 * The width of the picture in pixels.
 */
pixels?: number, 
/**
 * The number of levels that are drawn.
 */
depth?: number, 
/**
 * The place of the first lane.
 */
from?: number, 
/**
 * The number of lanes at most.
 */
count?: number, 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * The answer of `/api/trace/timeline`.
 */
export type CallTimelineAnswer = { 
/**
 * The trace's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * Where the picture begins.
 */
start_ns: number, 
/**
 * Where it ends.
 */
end_ns: number, 
/**
 * The time that a pixel covers.
 */
pixel_ns: number, 
/**
 * The functions of the bars.
 */
functions: Array<FlameFunction>, 
/**
 * Their modules.
 */
modules: Array<FlameModule>, 
/**
 * The lanes of the range, in the order in which the threads began.
 */
lanes: Array<CallLane>, 
/**
 * The number of all lanes.
 */
total_lanes: number, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * A thread's calls.
 */
export type CallLane = { 
/**
 * The values of selection parameters that select the thread.
 */
key: RowKeys, 
/**
 * The thread's name.
 */
name: string, 
/**
 * Its number.
 */
tid: number, 
/**
 * Its process's number.
 */
pid: number, 
/**
 * The number of calls that ended in the picture's time.
 */
calls: number, 
/**
 * The number of levels of calls.
 */
levels: number, 
/**
 * The number of bars that were left out because there are too many.
 */
left_out: number, 
/**
 * The bars.
 */
bars: CallBars, };

/**
 * Bars as parallel lists; those of a level in the order of time. A bar is one call, or several calls of one level that follow
 * each other within a pixel.
 */
export type CallBars = { 
/**
 * The number of calls around the bar.
 */
depth: Array<number>, 
/**
 * Where it begins; it may be before the picture.
 */
start: Array<number>, 
/**
 * Where it ends.
 */
end: Array<number>, 
/**
 * The function, of several calls that of the longest one, as an index.
 */
function: Array<number>, 
/**
 * The number of calls.
 */
count: Array<number>, 
/**
 * 1: the call goes on behind the end. 2: its beginning is not known. 4: it was left and goes on, or went on, elsewhere
 * (coroutines). The sum of these.
 */
state: Array<number>, };

/**
 * Parameters of `/api/trace/replay`.
 */
export type ReplayRequest = { 
/**
 * The place of the first row.
 */
from?: number, 
/**
 * The number of rows at most.
 */
count?: number, 
/**
 * A time: the answer says which row is the first that is not before it.
 */
at?: number, 
/**
 * Answer before all rows are counted, if they are not yet; goes without `at`.
 */
preview: boolean, 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * The answer of `/api/trace/replay`: a range of rows.
 */
export type ReplayAnswer = { 
/**
 * The trace's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The rows.
 */
rows: Array<ReplayRow>, 
/**
 * The place of the first of these rows.
 */
from: number, 
/**
 * The number of all rows; the number of rows up to the last one of this answer while `counted` is false.
 */
total_rows: number, 
/**
 * Whether all rows are counted. If not, losses are not known yet either.
 */
counted: boolean, 
/**
 * With `at`: the place of the first row that is not before that time.
 */
at_row: number | null, 
/**
 * The functions of the rows.
 */
functions: Array<FlameFunction>, 
/**
 * Their modules.
 */
modules: Array<FlameModule>, 
/**
 * The threads of the rows.
 */
threads: Array<TraceThread>, 
/**
 * Losses, fallbacks and limits.
 */
facts: Array<FactAnswer>, };

/**
 * A row of a replay.
 */
export type ReplayRow = { 
/**
 * The kind.
 */
kind: ReplayKind, 
/**
 * The thread, as an index.
 */
thread: number, 
/**
 * The number of calls around it.
 */
depth: number, 
/**
 * The function, as an index; none where records are missing.
 */
function: number | null, 
/**
 * The time of the row.
 */
time_ns: number, 
/**
 * For the end of a call: when the call began, if it is known.
 */
begin_ns: number | null, 
/**
 * For the end of a call: the call's duration, if it is known.
 */
duration_ns: number | null, 
/**
 * A note about the row: the end of a call, a thread's new name, the number of missing records.
 */
note?: string, };

/**
 * The kind of a row of a replay.
 */
export type ReplayKind = "call" | "enter" | "leave" | "event" | "lost";

/**
 * Parameters of `/api/trace/find`.
 */
export type ReplayFindRequest = { 
/**
 * The text that the function's name must contain.
 */
text: string, 
/**
 * `1`: the text is a regular expression.
 */
regex?: 0 | 1, 
/**
 * The first row that may be found.
 */
from?: number, 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * The answer of `/api/trace/find`.
 */
export type ReplayFindAnswer = { 
/**
 * The place of the first row of a function with such a name; none if there is no further one.
 */
row: number | null, };

/**
 * Parameters of `/api/trace/slowest`.
 */
export type SlowestRequest = { 
/**
 * The function's key.
 */
function: string, 
/**
 * The number of calls at most.
 */
count?: number, 
/**
 * The trace's index in the status; the first trace unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, };

/**
 * The answer of `/api/trace/slowest`.
 */
export type SlowestAnswer = { 
/**
 * The trace's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The function.
 */
function: FlameFunction, 
/**
 * The slowest calls, the slowest first.
 */
calls: Array<SlowCall>, 
/**
 * The number of all calls of the function.
 */
total_calls: number, };

/**
 * One call.
 */
export type SlowCall = { 
/**
 * The values of selection parameters that select its thread.
 */
key: RowKeys, 
/**
 * The thread's name.
 */
name: string, 
/**
 * The thread's number.
 */
tid: number, 
/**
 * When it began.
 */
begin_ns: number, 
/**
 * Its duration in nanoseconds.
 */
duration_ns: number, 
/**
 * The part of it outside of recorded calls below it.
 */
self_ns: number, 
/**
 * The number of calls around it.
 */
depth: number, 
/**
 * Whether it had ended.
 */
ended: boolean, };

/**
 * Parameters of `/api/heatmap`.
 */
export type HeatmapRequest = { 
/**
 * The width of a column in nanoseconds.
 */
column_ns?: number, 
/**
 * The number of rows into which a column is divided.
 */
rows?: number, 
/**
 * `A..B`: what the columns cover, in nanoseconds since the first sample; either may be empty.
 */
span?: string, 
/**
 * The kind of the values.
 */
value?: TimelineValue, 
/**
 * The profile's index; the first one unless given.
 */
profile?: number, 
/**
 * The generation that the request is about.
 */
generation?: number, 
/**
 * `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
 */
time?: string, 
/**
 * Keys of processes.
 */
process?: Array<string>, 
/**
 * Keys of threads.
 */
thread?: Array<string>, 
/**
 * Keys of programs.
 */
program?: Array<string>, 
/**
 * Names of threads when they were sampled.
 */
comm?: Array<string>, 
/**
 * CPUs, such as `0,2-5`.
 */
cpu?: Array<string>, 
/**
 * Keys of modules in which samples were taken.
 */
module?: Array<string>, 
/**
 * Keys of functions in which samples were taken.
 */
function?: Array<string>, 
/**
 * Keys of functions that are on the call stacks of samples.
 */
through?: Array<string>, 
/**
 * Keys of the events that are shown, in this order.
 */
event?: Array<string>, 
/**
 * `1`: functions that the compiler inlined are functions of their own.
 */
inlined?: 0 | 1, };

/**
 * The answer of `/api/heatmap`.
 */
export type HeatmapAnswer = { 
/**
 * The profile's index.
 */
profile: number, 
/**
 * The generation that answers.
 */
generation: number, 
/**
 * The event that is counted.
 */
event: TimelineEvent, 
/**
 * Where the first column begins: a multiple of the width.
 */
start_ns: number, 
/**
 * The width of a column.
 */
column_ns: number, 
/**
 * The number of columns.
 */
columns: number, 
/**
 * The number of rows of a column. Row R begins R / `rows` of a width after the column's begin.
 */
rows: number, 
/**
 * By column, then row. Samples outside of the span are not counted.
 */
values: Array<number>, 
/**
 * The largest of the values.
 */
peak: number, 
/**
 * All counted samples.
 */
samples: number, 
/**
 * The sum of their periods.
 */
weight: number, 
/**
 * The number of samples without a time.
 */
untimed: number, };
