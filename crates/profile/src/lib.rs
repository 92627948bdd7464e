//! The model: processes with their mappings, call stacks, and the counts of every event.
