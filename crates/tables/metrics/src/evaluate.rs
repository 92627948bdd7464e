//! Evaluation of rows of counts to cells.
//!
//! Values go forward over the list of nodes, once for a row. The error of a column comes from the derivatives by its
//! inputs, by one walk backward over its own nodes: variance = Σ (∂f/∂xᵢ)² · var(xᵢ), inputs taken as independent. An
//! input that stands in a formula several times is one input, so `x - x` has no error. `min`, `max` and conditionals
//! take the derivative of the side that gave the value; comparisons have none.

use crate::bound::{Bound, Node};
use crate::count::{Cell, Count};
use crate::expr::{BinaryOp, UnaryOp};

/// The way in which numbers are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Numbers are not rounded: costs are in cycles.
    #[default]
    Exact,
    /// Numbers are rounded as Gooda does. Each cost is a whole number of samples of the reference event, truncated
    /// before it is summed, and each column is truncated. Totals in formulas are counts of samples without regard to
    /// period and multiplexing. There are no errors.
    Gooda,
}

/// Evaluates all columns of a bound set, row by row, without allocation.
#[derive(Debug)]
pub struct Evaluator<'b> {
    bound: &'b Bound,
    mode: Mode,
    totals: Vec<Count>,
    /// Variance of an input without samples: one sample's weight, squared. 0 for events that were not sampled.
    unseen: Vec<f64>,
    /// Events in one sample of the reference.
    cycle_unit: Option<f64>,
    values: Vec<f64>,
    slopes: Vec<f64>,
    cells: Vec<Cell>,
}

impl Bound {
    /// Makes an evaluator. `totals` are the counts of the whole profile, one for each recorded event; missing ones
    /// count as 0.
    pub fn evaluator(&self, totals: &[Count], mode: Mode) -> Evaluator<'_> {
        let count = self.periods.len();
        let mut own: Vec<Count> = totals.iter().copied().take(count).collect();
        own.resize(count, Count::default());
        let mean = |c: &Count| {
            if c.samples == 0 {
                0.0
            } else {
                c.value / c.samples as f64
            }
        };
        let weights: Vec<f64> = own
            .iter()
            .zip(&self.periods)
            .map(|(total, period)| period.unwrap_or_else(|| mean(total)))
            .collect();
        let cells = self
            .columns
            .iter()
            .map(|c| match c.root {
                None => Cell::Missing(c.missing.clone()),
                Some(_) => Cell::Undefined,
            })
            .collect();
        Evaluator {
            bound: self,
            mode,
            cycle_unit: self
                .reference
                .map(|r| weights[r as usize])
                .filter(|unit| *unit > 0.0),
            unseen: weights.iter().map(|w| w * w).collect(),
            totals: own,
            values: vec![0.0; self.nodes.len()],
            slopes: vec![0.0; self.nodes.len()],
            cells,
        }
    }
}

impl Evaluator<'_> {
    /// Returns the cells of a row, one for each column of the set. `counts` has one entry for each recorded event;
    /// missing entries count as 0.
    pub fn row(&mut self, counts: &[Count]) -> &[Cell] {
        self.forward(counts);
        for c in 0..self.bound.columns.len() {
            let Some(root) = self.bound.columns[c].root else {
                continue;
            };
            let value = self.values[root as usize];
            self.cells[c] = if value.is_finite() {
                let partial = !self.bound.columns[c].left_out.is_empty();
                let (error, low_counts) = match self.mode {
                    Mode::Exact => self.uncertainty(c, root, counts),
                    Mode::Gooda => (0.0, false),
                };
                Cell::Value {
                    value,
                    error,
                    low_counts,
                    partial,
                }
            } else {
                Cell::Undefined
            };
        }
        &self.cells
    }

    /// Returns a column's value and its derivatives by the recorded events that it uses, for errors with covariances.
    /// `None` where the column has no value.
    pub fn gradient(&mut self, column: usize, counts: &[Count]) -> Option<(f64, Vec<(u32, f64)>)> {
        let value = self.value(column, counts)?;
        self.backward(column, self.bound.columns[column].root?);
        let order = &self.bound.columns[column].order;
        let slopes = order
            .iter()
            .filter_map(|&n| match self.bound.nodes[n as usize] {
                Node::Input(event) => Some((event, self.slopes[n as usize])),
                _ => None,
            });
        Some((value, slopes.collect()))
    }

    /// Returns a column's value alone, at the cost of its own formula. `None` where the column has no value.
    pub fn value(&mut self, column: usize, counts: &[Count]) -> Option<f64> {
        let bound = self.bound;
        let column = bound.columns.get(column)?;
        let root = column.root?;
        for &n in &column.order {
            self.values[n as usize] = self.node(bound.nodes[n as usize], counts);
        }
        Some(self.values[root as usize]).filter(|value| value.is_finite())
    }

    fn forward(&mut self, counts: &[Count]) {
        for (i, node) in self.bound.nodes.iter().enumerate() {
            self.values[i] = self.node(*node, counts);
        }
    }

    /// Returns a node's value, from the values of its operands.
    fn node(&self, node: Node, counts: &[Count]) -> f64 {
        let count =
            |list: &[Count], event: u32| list.get(event as usize).copied().unwrap_or_default();
        let v = |n: u32| self.values[n as usize];
        match node {
            Node::Const(bits) => f64::from_bits(bits),
            Node::Input(event) => count(counts, event).value,
            Node::Total(event) => match self.mode {
                Mode::Exact => count(&self.totals, event).value,
                Mode::Gooda => count(&self.totals, event).samples as f64,
            },
            Node::Unary(UnaryOp::Neg, a) => -v(a),
            Node::Unary(UnaryOp::Not, a) => truth(v(a), v(a) == 0.0),
            Node::Abs(a) => v(a).abs(),
            Node::Binary(op, a, b) => binary_value(op, v(a), v(b)),
            Node::Min(a, b) => pick(v(a), v(b), v(a) <= v(b)),
            Node::Max(a, b) => pick(v(a), v(b), v(a) >= v(b)),
            Node::Ratio(_, b) if v(b) == 0.0 => 0.0,
            Node::Ratio(a, b) => v(a) / v(b),
            Node::If(c, a, b) => match v(c) {
                c if c.is_nan() => f64::NAN,
                0.0 => v(b),
                _ => v(a),
            },
            Node::Cycles(a) => match self.mode {
                Mode::Exact => v(a),
                Mode::Gooda => self
                    .cycle_unit
                    .map_or(f64::NAN, |unit| (v(a) / unit).trunc()),
            },
            Node::Whole(a) => match self.mode {
                Mode::Exact => v(a),
                Mode::Gooda => v(a).trunc(),
            },
        }
    }

    fn backward(&mut self, column: usize, root: u32) {
        let order = &self.bound.columns[column].order;
        for &n in order {
            self.slopes[n as usize] = 0.0;
        }
        self.slopes[root as usize] = 1.0;
        for &n in order.iter().rev() {
            let slope = self.slopes[n as usize];
            // A skipped slope of 0 also keeps infinite slopes of a side that was not taken out of the sum.
            if slope == 0.0 {
                continue;
            }
            let v = |n: u32| self.values[n as usize];
            let mut add = |n: u32, part: f64| self.slopes[n as usize] += slope * part;
            match self.bound.nodes[n as usize] {
                Node::Const(_) | Node::Input(_) | Node::Total(_) | Node::Unary(UnaryOp::Not, _) => {
                }
                Node::Unary(UnaryOp::Neg, a) => add(a, -1.0),
                Node::Abs(a) => add(a, if v(a) < 0.0 { -1.0 } else { 1.0 }),
                Node::Cycles(a) | Node::Whole(a) => add(a, 1.0),
                Node::Binary(op, a, b) => match op {
                    BinaryOp::Add => {
                        add(a, 1.0);
                        add(b, 1.0);
                    }
                    BinaryOp::Sub => {
                        add(a, 1.0);
                        add(b, -1.0);
                    }
                    BinaryOp::Mul => {
                        let (left, right) = (v(a), v(b));
                        add(a, right);
                        add(b, left);
                    }
                    BinaryOp::Div => {
                        let (left, right) = (v(a), v(b));
                        add(a, 1.0 / right);
                        add(b, -left / (right * right));
                    }
                    BinaryOp::Rem => {
                        let whole = (v(a) / v(b)).trunc();
                        add(a, 1.0);
                        add(b, -whole);
                    }
                    _ => {}
                },
                Node::Min(a, b) => add(if v(a) <= v(b) { a } else { b }, 1.0),
                Node::Max(a, b) => add(if v(a) >= v(b) { a } else { b }, 1.0),
                Node::Ratio(a, b) => {
                    let (left, right) = (v(a), v(b));
                    if right != 0.0 {
                        add(a, 1.0 / right);
                        add(b, -left / (right * right));
                    }
                }
                Node::If(c, a, b) => add(if v(c) == 0.0 { b } else { a }, 1.0),
            }
        }
    }

    /// Returns the standard error, and whether it rests on too few samples.
    fn uncertainty(&mut self, column: usize, root: u32, counts: &[Count]) -> (f64, bool) {
        self.backward(column, root);
        let (mut variance, mut from_few) = (0.0, 0.0);
        let (mut sampled_inputs, mut samples) = (false, 0);
        for &n in &self.bound.columns[column].order {
            let (event, list) = match self.bound.nodes[n as usize] {
                Node::Input(event) => (event as usize, counts),
                Node::Total(event) => (event as usize, self.totals.as_slice()),
                _ => continue,
            };
            let count = list.get(event).copied().unwrap_or_default();
            // A count that was read has a value without samples; a count that was never seen has neither.
            let sampled = count.samples > 0
                || count.value == 0.0
                    && (self.unseen[event] > 0.0 || self.totals[event].samples > 0);
            if !sampled && count.variance == 0.0 {
                continue;
            }
            sampled_inputs |= sampled;
            samples += count.samples;
            let own = if count.samples == 0 && count.variance == 0.0 {
                self.unseen[event]
            } else {
                count.variance
            };
            let slope = self.slopes[n as usize];
            let part = slope * slope * own;
            if part.is_finite() {
                variance += part;
                if sampled && count.samples < self.bound.min_samples {
                    from_few += part;
                }
            }
        }
        let low = sampled_inputs && (samples == 0 || from_few > variance / 2.0);
        (variance.sqrt(), low)
    }
}

/// Returns a truth value as a number; a number without a value has no truth.
fn truth(of: f64, holds: bool) -> f64 {
    if of.is_nan() {
        f64::NAN
    } else {
        f64::from(u8::from(holds))
    }
}

/// Returns one of two numbers, the first if `first`. The result has no value if either has none.
pub(crate) fn pick(a: f64, b: f64, first: bool) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if first {
        a
    } else {
        b
    }
}

/// Computes one operation. A number without a value is NaN; a division by 0 has no value.
pub(crate) fn binary_value(op: BinaryOp, a: f64, b: f64) -> f64 {
    let both = a + b;
    // The conversion saturates, as Rust's conversions do, so that every number has a result.
    let bits = |f: fn(i64, i64) -> i64| {
        if both.is_nan() {
            f64::NAN
        } else {
            f(a as i64, b as i64) as f64
        }
    };
    match op {
        BinaryOp::Or => bits(|a, b| a | b),
        BinaryOp::Xor => bits(|a, b| a ^ b),
        BinaryOp::And => bits(|a, b| a & b),
        BinaryOp::Less => truth(both, a < b),
        BinaryOp::Greater => truth(both, a > b),
        BinaryOp::LessEqual => truth(both, a <= b),
        BinaryOp::GreaterEqual => truth(both, a >= b),
        BinaryOp::Equal => truth(both, a == b),
        BinaryOp::NotEqual => truth(both, a != b),
        BinaryOp::Add => both,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div | BinaryOp::Rem if b == 0.0 => f64::NAN,
        BinaryOp::Div => a / b,
        BinaryOp::Rem => a % b,
    }
}
