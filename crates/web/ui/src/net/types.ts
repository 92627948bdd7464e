// The answers of the server. The structs in crates/web/src/api are the definition; API.md describes them.

export type Severity = "info" | "fallback" | "warning" | "loss";

export interface Fact {
  id: string;
  severity: Severity;
  text: string;
  value: unknown;
}

export interface ErrorBody {
  code: string;
  text: string;
  remedy: string | null;
}

export interface ProfileState {
  index: number;
  label: string;
  path: string;
  generation: number;
  state: "waiting" | "reading" | "naming" | "ready" | "failed";
  reloading?: boolean;
  progress: { done: number; total: number; unit: string } | null;
  elapsed_ms: number;
  error: ErrorBody | null;
}

export interface Status {
  version: string;
  revision: number;
  profiles: ProfileState[];
}

export interface EventInfo {
  key: string;
  name: string;
  unit: string | null;
  samples: number;
  weight: number;
  has_chains: boolean;
  is_scaled: boolean;
  sampled: boolean;
}

export interface ProfileAnswer {
  profile: number;
  generation: number;
  label: string;
  path: string;
  size_bytes: number;
  machine: {
    hostname: string | null;
    os_release: string | null;
    arch: string | null;
    cpu: string | null;
    cpus_online: number | null;
    memory_kib: number | null;
  };
  command_line: string[];
  recorder: string | null;
  duration_ns: number | null;
  first_time_ns: number | null;
  events: EventInfo[];
  default_events: string[];
  has: { chains: boolean; times: boolean; cpus: boolean; threads: boolean; branches: boolean; memory: boolean };
  counts: { processes: number; threads: number; modules: number; functions: number; cpus: number };
  facts: Fact[];
}

export interface Column {
  id: string;
  name: string;
  unit: string | null;
  kind: "count" | "weight" | "ratio" | "time" | "address" | "name";
  event: string | null;
  parent: string | null;
  for_programs: boolean;
}

export type Cell = number | string | null;

export interface RowKey {
  process?: string;
  thread?: string;
  program?: string;
  comm?: string;
  cpu?: string;
  module?: string;
  function?: string;
  time?: [number, number];
}

export interface Row {
  id: number;
  parent: number | null;
  depth: number;
  below: number;
  key: RowKey;
  cells: Cell[];
  standard_errors?: Record<string, number>;
  notes?: Record<string, string>;
  cut?: boolean;
}

export interface TableAnswer {
  schema: number;
  profile: number;
  generation: number;
  columns: Column[];
  rows: Row[];
  from: number;
  total_rows: number;
  matching_rows: number;
  totals: Cell[];
  sorted_by: { column: string; direction: "asc" | "desc" } | null;
  facts: Fact[];
}

export interface Counted {
  samples: number;
  weight: number;
  estimate: number;
  error: number;
}

export interface FlameAnswer {
  profile: number;
  generation: number;
  direction: "callees" | "callers";
  events: { key: string; name: string; unit: string | null; total: { samples: number; weight: number } }[];
  functions: { key: string; name: string; module: number; inlined: boolean }[];
  modules: { key: string; name: string }[];
  above: { id: number; function: number }[];
  nodes: {
    id: number[];
    parent: number[];
    function: number[];
    below: number[];
    own: number[][];
    total: number[][];
    own_samples: number[][];
    total_samples: number[][];
  };
  left_out: { nodes: number; weight: number };
  total_nodes: number;
  facts: Fact[];
}

export interface SourceFile {
  id: string;
  path: string;
  found: boolean;
  found_at: string | null;
  lines: number;
  newer: boolean;
  why: string | null;
}

export interface FunctionAnswer {
  profile: number;
  generation: number;
  function: {
    key: string;
    name: string;
    raw_name: string;
    module: { key: string; name: string; path: string };
    start: number | null;
    end: number | null;
    virtual_start: number | null;
  };
  events: { key: string; name: string; unit: string | null; scaled: boolean; total: Counted; own: Counted }[];
  has_code: boolean;
  strings: string[];
  frames: { function: number[]; file: number[]; line: number[]; column: number[]; inlined: number[] };
  stacks: number[][];
  instructions: {
    address: number[];
    virtual_address: number[];
    bytes: string[];
    text: string[];
    kind: number[];
    block: number[];
    stack: number[];
    samples: number[][];
    weight: number[][];
    estimate: number[][];
    error: number[][];
  };
  targets: {
    instruction: number;
    to: number | null;
    virtual_address: number;
    function: string | null;
    offset: number | null;
    key: string | null;
  }[];
  blocks: {
    first: number;
    count: number;
    loop: number | null;
    depth: number;
    samples: number[];
    weight: number[];
    estimate: number[];
  }[];
  edges: {
    from: number;
    to: number | null;
    outside: number | null;
    function: string | null;
    kind: "fall_through" | "taken" | "jump" | "call_return" | "table" | "indirect" | "leave";
    executions: number | null;
  }[];
  loops: {
    header: number;
    parent: number | null;
    depth: number;
    blocks: number[];
    samples: number[];
    weight: number[];
    trips: number | null;
    trips_error: number | null;
  }[];
  files: SourceFile[];
  lines: {
    file: number;
    line: number;
    has_code: boolean;
    samples: number[];
    weight: number[];
    outer_samples: number[];
    outer_weight: number[];
  }[];
  unresolved_jumps: number;
  facts: Fact[];
}

export interface SourceAnswer {
  file: SourceFile;
  from: number;
  total_lines: number;
  lines: string[];
}

export interface TimelineAnswer {
  profile: number;
  generation: number;
  event: { key: string; name: string; unit: string | null };
  start_ns: number;
  end_ns: number;
  bin_ns: number;
  bins: number;
  rows: {
    key: RowKey;
    name: string;
    number: number | null;
    process_name?: string;
    samples: number;
    weight: number;
    first_ns: number;
    last_ns: number;
    values: number[];
  }[];
  total_rows: number;
  peak: number;
  untimed: number;
  facts: Fact[];
}

export interface SearchAnswer {
  hits: { kind: "function" | "module" | "process" | "thread"; key: RowKey; name: string; module: string | null; percent: number | null }[];
  total: number;
}
