//! The result of binding: a program for all columns, with notes about ambiguous and missing inputs.

use std::sync::Arc;

use crate::expr::{BinaryOp, UnaryOp};

/// One step of the program; operands are earlier nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A number, as its bits.
    Const(u64),
    /// The row's count of a recorded event.
    Input(u32),
    /// The profile's count of a recorded event.
    Total(u32),
    Unary(UnaryOp, u32),
    Abs(u32),
    Binary(BinaryOp, u32, u32),
    Min(u32, u32),
    Max(u32, u32),
    Ratio(u32, u32),
    If(u32, u32, u32),
    /// A cost in cycles; in Gooda's mode a whole number of samples.
    Cycles(u32),
    /// A column's value; in Gooda's mode a whole number.
    Whole(u32),
}

impl Node {
    /// Returns the operands of the node.
    pub(crate) fn operands(self) -> impl Iterator<Item = u32> {
        let [a, b, c] = match self {
            Self::Const(_) | Self::Input(_) | Self::Total(_) => [None; 3],
            Self::Unary(_, a) | Self::Abs(a) | Self::Cycles(a) | Self::Whole(a) => {
                [Some(a), None, None]
            }
            Self::Binary(_, a, b) | Self::Min(a, b) | Self::Max(a, b) | Self::Ratio(a, b) => {
                [Some(a), Some(b), None]
            }
            Self::If(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        [a, b, c].into_iter().flatten()
    }
}

/// A choice that binding had to make, or a doubt about the inputs; to be shown beside the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindNote {
    /// Several recorded events answer to one name of a formula.
    Several {
        /// The formula's name.
        wanted: String,
        /// The event that is used.
        chosen: String,
        /// The other events with that name.
        others: Vec<String>,
    },
    /// A column's inputs were counted in different modes, such as user only and everything.
    MixedModifiers {
        /// The column.
        column: String,
        /// Its inputs as recorded.
        inputs: Vec<String>,
    },
    /// A column's inputs come from different groups: they were not counted at the same time.
    ApartGroups {
        /// The column.
        column: String,
    },
    /// A formula, with all that it refers to, is larger than this crate follows; the column has no value.
    TooLarge {
        /// The column.
        column: String,
    },
}

/// A column after binding.
#[derive(Debug, Clone, Default)]
pub struct BoundColumn {
    /// Inputs without which the column has no value; empty if it has one.
    pub missing: Arc<[String]>,
    /// Inputs of a sum that were not recorded: the value is a lower bound.
    pub left_out: Arc<[String]>,
    /// The recorded events that the column uses, as indices of the list given to
    /// [`MetricSet::bind`](crate::MetricSet::bind).
    pub inputs: Vec<u32>,
    pub(crate) root: Option<u32>,
    /// The column's own nodes, operands first.
    pub(crate) order: Vec<u32>,
}

impl BoundColumn {
    /// Returns true if the column's formula can be evaluated: its inputs were recorded, and it is not too large.
    pub fn has_value(&self) -> bool {
        self.root.is_some()
    }
}

/// A set bound to the events of a profile. A report needs one of these; each thread makes its own evaluator.
#[derive(Debug)]
pub struct Bound {
    pub(crate) nodes: Vec<Node>,
    pub(crate) columns: Vec<BoundColumn>,
    pub(crate) periods: Vec<Option<f64>>,
    pub(crate) reference: Option<u32>,
    pub(crate) min_samples: u64,
    pub(crate) notes: Vec<BindNote>,
}

impl Bound {
    /// Returns the bound columns in the order of the set's columns.
    pub fn columns(&self) -> &[BoundColumn] {
        &self.columns
    }

    /// Returns the number of recorded events that the set was bound to.
    pub fn events(&self) -> usize {
        self.periods.len()
    }

    /// Returns the events whose counts in a row a column uses, ascending. An event is left out if the column uses only
    /// its count over the whole profile (`total(event)`).
    pub fn row_inputs(&self, column: usize) -> Vec<u32> {
        let order = self.columns.get(column).map_or(&[][..], |c| &c.order);
        let inputs = order.iter().filter_map(|&n| match self.nodes[n as usize] {
            Node::Input(event) => Some(event),
            _ => None,
        });
        let mut inputs: Vec<u32> = inputs.collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// Returns true if a column's formula has a derivative everywhere: no `min`, `max`, `abs`, conditional, remainder
    /// or comparison.
    pub fn is_smooth(&self, column: usize) -> bool {
        let order = self.columns.get(column).map_or(&[][..], |c| &c.order);
        order.iter().all(|&n| match self.nodes[n as usize] {
            Node::Binary(op, ..) => matches!(
                op,
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div
            ),
            Node::Unary(op, _) => op == UnaryOp::Neg,
            Node::Abs(_) | Node::Min(..) | Node::Max(..) | Node::If(..) => false,
            _ => true,
        })
    }

    /// Returns true if a column cannot be below 0 as long as no count is: nothing is subtracted in it.
    pub fn is_never_negative(&self, column: usize) -> bool {
        let order = self.columns.get(column).map_or(&[][..], |c| &c.order);
        order.iter().all(|&n| match self.nodes[n as usize] {
            Node::Const(bits) => f64::from_bits(bits) >= 0.0,
            Node::Binary(op, ..) => op != BinaryOp::Sub,
            Node::Unary(op, _) => op != UnaryOp::Neg,
            _ => true,
        })
    }

    /// Returns the choices that binding had to make, and its doubts.
    pub fn notes(&self) -> &[BindNote] {
        &self.notes
    }
}
