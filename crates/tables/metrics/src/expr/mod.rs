//! The expression language of derived columns.
//!
//! One grammar reads three dialects: ours, the one of Linux's metric files and the plainer one of Intel's and Arm's.
//!
//! ```text
//! expr    := or [ 'if' or 'else' expr ]            perf's conditional
//! or      := xor { '|' xor }                       xor := and { '^' and }     and := cmp { '&' cmp }
//! cmp     := sum { ('<' | '>' | '<=' | '>=' | '==' | '!=') sum }
//! sum     := term { ('+' | '-') term }             term := unary { ('*' | '/' | '%') unary }
//! unary   := ('-' | '!') unary | number | name | function '(' args ')' | '(' expr ')'
//! name    := word | '\'' any text '\''
//! ```
//!
//! A word is an event's name as its maker writes it: `UOPS_ISSUED.ANY:c=1`, `cpu_clk_unhalted:ref_xclk`,
//! `cpu/event=0x3c,umask=0x0/u`, `cpu@event\=0x3c@`. A name with other characters (`branch-misses`) stands in quotes.
//! Reading is total: depth and length are limited, any text gives an expression or an [`ExprError`].

mod lex;
mod parse;
mod print;

use thiserror::Error;

pub use parse::parse;

/// The longest text of an expression, in bytes.
pub const MAX_LENGTH: usize = 1 << 20;
/// The deepest tree of an expression.
pub const MAX_DEPTH: usize = 250;

/// An expression over events, constants and other columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A literal; never negative, always finite when it comes from [`parse`].
    Number(f64),
    /// An event, a constant (`#slots`) or another column. Binding a set decides which of them a name is.
    Name(String),
    /// One operand.
    Unary(UnaryOp, Box<Expr>),
    /// Two operands.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `then if condition else otherwise`.
    If {
        /// The condition, which holds unless it is zero.
        condition: Box<Expr>,
        /// The value where the condition holds.
        then: Box<Expr>,
        /// The value elsewhere.
        otherwise: Box<Expr>,
    },
    /// A function of the language.
    Call(Function, Vec<Expr>),
}

/// Operators of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-a`
    Neg,
    /// `!a`: 1 where a is 0, else 0
    Not,
}

/// Operators of two operands. Comparisons give 1 or 0; the bit operators work on the integer parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a | b`
    Or,
    /// `a ^ b`
    Xor,
    /// `a & b`
    And,
    /// `a < b`
    Less,
    /// `a > b`
    Greater,
    /// `a <= b`
    LessEqual,
    /// `a >= b`
    GreaterEqual,
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`; undefined where b is 0
    Div,
    /// `a % b`; undefined where b is 0
    Rem,
}

impl BinaryOp {
    /// Returns the operator's precedence: from 2 on, since a conditional has 1. All operators are left associative.
    fn precedence(self) -> u8 {
        match self {
            Self::Or => 2,
            Self::Xor => 3,
            Self::And => 4,
            Self::Less
            | Self::Greater
            | Self::LessEqual
            | Self::GreaterEqual
            | Self::Equal
            | Self::NotEqual => 5,
            Self::Add | Self::Sub => 6,
            Self::Mul | Self::Div | Self::Rem => 7,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Or => "|",
            Self::Xor => "^",
            Self::And => "&",
            Self::Less => "<",
            Self::Greater => ">",
            Self::LessEqual => "<=",
            Self::GreaterEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
        }
    }
}

/// The functions of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `min(a, …)`
    Min,
    /// `max(a, …)`
    Max,
    /// `abs(a)`
    Abs,
    /// `ratio(a, b)` and perf's `d_ratio(a, b)`: a / b, and 0 where b is 0.
    Ratio,
    /// `sum(a, …)`: terms whose inputs were not recorded are left out, and the result says so.
    Sum,
    /// `cycles(a)`: a cost in cycles. In Gooda's mode it becomes a whole number of samples of the cycles event.
    Cycles,
    /// `total(event)`: the event's count over the whole profile, not over the row.
    Total,
    /// `has_event(event)`: 1 if the event was recorded, else 0.
    HasEvent,
    /// `source_count(event)`: the number of units that counted the event; 1 unless the environment knows better.
    SourceCount,
    /// `strcmp_cpuid_str(id)`: 1 if the CPU is the named one (on Arm: this part, at least this revision), else 0.
    StrcmpCpuid,
}

impl Function {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "min" => Self::Min,
            "max" => Self::Max,
            "abs" => Self::Abs,
            "ratio" | "d_ratio" => Self::Ratio,
            "sum" => Self::Sum,
            "cycles" => Self::Cycles,
            "total" => Self::Total,
            "has_event" => Self::HasEvent,
            "source_count" => Self::SourceCount,
            "strcmp_cpuid_str" => Self::StrcmpCpuid,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Abs => "abs",
            Self::Ratio => "ratio",
            Self::Sum => "sum",
            Self::Cycles => "cycles",
            Self::Total => "total",
            Self::HasEvent => "has_event",
            Self::SourceCount => "source_count",
            Self::StrcmpCpuid => "strcmp_cpuid_str",
        }
    }

    /// Returns the least and the greatest number of arguments.
    fn arity(self) -> (usize, usize) {
        match self {
            Self::Min | Self::Max | Self::Sum => (1, usize::MAX),
            Self::Ratio => (2, 2),
            _ => (1, 1),
        }
    }

    /// Returns true if the only argument must be a name.
    fn takes_name(self) -> bool {
        matches!(self, Self::Total | Self::HasEvent | Self::SourceCount)
    }
}

impl Expr {
    /// Makes a name.
    pub fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into())
    }

    /// Calls `visit` with each name of the expression, in the order of the text, repeated names too. Names inside of
    /// `has_event` and `source_count` are left out: they need not be recorded.
    pub fn visit_names<'e>(&'e self, visit: &mut impl FnMut(&'e str)) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => visit(name),
            Self::Unary(_, a) => a.visit_names(visit),
            Self::Binary(_, a, b) => {
                a.visit_names(visit);
                b.visit_names(visit);
            }
            Self::If {
                condition,
                then,
                otherwise,
            } => {
                then.visit_names(visit);
                condition.visit_names(visit);
                otherwise.visit_names(visit);
            }
            Self::Call(Function::HasEvent | Function::SourceCount | Function::StrcmpCpuid, _) => {}
            Self::Call(_, args) => args.iter().for_each(|a| a.visit_names(visit)),
        }
    }

    /// Returns the same expression with each name replaced by the expression that `replace` gives for it, if there is
    /// one.
    pub fn substitute(&self, replace: &impl Fn(&str) -> Option<Self>) -> Self {
        match self {
            Self::Number(n) => Self::Number(*n),
            Self::Name(name) => replace(name).unwrap_or_else(|| self.clone()),
            Self::Unary(op, a) => Self::Unary(*op, Box::new(a.substitute(replace))),
            Self::Binary(op, a, b) => Self::Binary(
                *op,
                Box::new(a.substitute(replace)),
                Box::new(b.substitute(replace)),
            ),
            Self::If {
                condition,
                then,
                otherwise,
            } => Self::If {
                condition: Box::new(condition.substitute(replace)),
                then: Box::new(then.substitute(replace)),
                otherwise: Box::new(otherwise.substitute(replace)),
            },
            Self::Call(f, args) => {
                Self::Call(*f, args.iter().map(|a| a.substitute(replace)).collect())
            }
        }
    }
}

/// A reason why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("formula, byte {offset}: {reason}")]
pub struct ExprError {
    /// The place of the mistake in the text, in bytes.
    pub offset: usize,
    /// The mistake, and what was expected instead.
    pub reason: String,
}

impl ExprError {
    fn new(offset: usize, reason: impl Into<String>) -> Self {
        Self {
            offset,
            reason: reason.into(),
        }
    }
}
