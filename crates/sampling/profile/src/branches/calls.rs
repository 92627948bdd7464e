//! Calls between functions, found from branches.

use super::analysis::{BranchAnalysis, BranchClass};
use super::code::{CodeOutline, Flow};
use super::tally::{Executions, Share};
use super::{BranchEdge, BranchKind};
use crate::processes::modules::ModuleId;
use crate::stacks::frames::{Frame, FrameId};

/// The function at an address: its module and first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionAt {
    /// The module.
    pub module: ModuleId,
    /// Its first address.
    pub start: u64,
}

/// The kind of a transfer of control from one function to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A call of a fixed target.
    Direct,
    /// A call of a computed target.
    Indirect,
    /// A call of which neither the recording nor the code says more.
    Unknown,
    /// A jump to the start of another function: a tail call, a stub of a linkage table, or a function's cold part.
    Tail,
}

/// A call from one place to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallCount {
    /// The call instruction.
    pub site: FrameId,
    /// The called instruction.
    pub target: FrameId,
    /// The function of the site, where its code is known.
    pub caller: Option<FunctionAt>,
    /// The function of the target, where its code is known.
    pub callee: Option<FunctionAt>,
    /// The kind of call.
    pub kind: CallKind,
    /// The number of calls.
    pub count: Executions,
    /// The share of mispredicted calls.
    pub mispredicted: Option<Share>,
}

/// A return from one place to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReturnCount {
    /// The return instruction.
    pub from: FrameId,
    /// The return's target: the instruction after the call.
    pub to: FrameId,
    /// The function that returned.
    pub callee: Option<FunctionAt>,
    /// The function that went on.
    pub caller: Option<FunctionAt>,
    /// The number of returns.
    pub count: Executions,
    /// The share of mispredicted returns.
    pub mispredicted: Option<Share>,
}

/// All calls and returns of an event's branches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The most frequent first.
    pub calls: Vec<CallCount>,
    /// The most frequent first. In recordings of returns only, they show the callers of each function.
    pub returns: Vec<ReturnCount>,
    /// Records of branches for which neither the recording nor any code says whether they are calls.
    pub unknown: u64,
}

impl BranchAnalysis<'_> {
    /// Returns all calls and returns by source and target.
    pub fn calls(&self) -> Calls {
        let mut result = Calls::default();
        for edge in self.edges() {
            match self.kind_of(edge) {
                Some(BranchClass::Call) => result.calls.push(self.call(edge)),
                Some(BranchClass::Return) => result.returns.push(ReturnCount {
                    from: edge.from,
                    to: edge.to,
                    callee: self.function_of(edge.from),
                    caller: self.function_of(edge.to),
                    count: edge.taken,
                    mispredicted: edge.mispredicted,
                }),
                Some(BranchClass::Jump) => {
                    let call = self.call(edge);
                    let is_start = call
                        .callee
                        .is_some_and(|callee| callee.start == self.address(edge.to));
                    if is_start && call.caller != call.callee {
                        let kind = CallKind::Tail;
                        result.calls.push(CallCount { kind, ..call });
                    }
                }
                Some(BranchClass::Diversion | BranchClass::Resumption) => {}
                None => result.unknown += edge.taken.seen,
            }
        }
        result
            .calls
            .sort_by_key(|call| std::cmp::Reverse(call.count.seen));
        result
            .returns
            .sort_by_key(|call| std::cmp::Reverse(call.count.seen));
        result
    }

    fn call(&self, edge: &BranchEdge) -> CallCount {
        let kind = match edge.kind {
            BranchKind::Call | BranchKind::ConditionalCall => CallKind::Direct,
            BranchKind::IndirectCall => CallKind::Indirect,
            _ => match self.flow_at(edge.from) {
                Some(Flow::Call) => CallKind::Direct,
                Some(Flow::IndirectCall) => CallKind::Indirect,
                _ => CallKind::Unknown,
            },
        };
        CallCount {
            site: edge.from,
            target: edge.to,
            caller: self.function_of(edge.from),
            callee: self.function_of(edge.to),
            kind,
            count: edge.taken,
            mispredicted: edge.mispredicted,
        }
    }

    fn outline_of(&self, frame: FrameId) -> Option<(Frame, std::sync::Arc<CodeOutline>)> {
        let frame = self.profile.frames().get(frame);
        let outline = self.code.function(frame.module, frame.address)?;
        Some((frame, outline))
    }

    pub(super) fn function_of(&self, frame: FrameId) -> Option<FunctionAt> {
        let (Frame { module, .. }, outline) = self.outline_of(frame)?;
        let start = outline.addresses().start;
        Some(FunctionAt { module, start })
    }

    fn flow_at(&self, frame: FrameId) -> Option<Flow> {
        let (Frame { address, .. }, outline) = self.outline_of(frame)?;
        let instruction = outline.instruction_at(address)?;
        Some(outline.instructions()[instruction].flow)
    }
}
