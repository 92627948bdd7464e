//! Tokens to a tree, by precedence climbing.

use super::lex::{Lexer, Token};
use super::{BinaryOp, Expr, ExprError, Function, MAX_DEPTH, MAX_LENGTH, UnaryOp};

/// Reads one expression.
///
/// # Errors
/// Text that is no expression, is longer than [`MAX_LENGTH`] or deeper than [`MAX_DEPTH`].
pub fn parse(text: &str) -> Result<Expr, ExprError> {
    if text.len() > MAX_LENGTH {
        return Err(ExprError::new(
            MAX_LENGTH,
            format!("longer than {MAX_LENGTH} bytes"),
        ));
    }
    let mut parser = Parser {
        lexer: Lexer::new(text),
        ahead: None,
        depth: 0,
    };
    parser.advance()?;
    let (expr, _) = parser.conditional()?;
    match parser.ahead {
        None => Ok(expr),
        Some((at, _)) => Err(ExprError::new(at, "expected an operator or the end")),
    }
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    ahead: Option<(usize, Token)>,
    /// Nesting of the calls below.
    depth: usize,
}

/// A tree and its depth: long chains of one operator lean to the left, so depth is counted, not only recursion.
type Tree = (Expr, usize);

impl Parser<'_> {
    fn advance(&mut self) -> Result<Option<Token>, ExprError> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.ahead, next).map(|(_, token)| token))
    }

    fn at(&self) -> usize {
        self.ahead
            .as_ref()
            .map_or(self.lexer.offset(), |(at, _)| *at)
    }

    fn error<T>(&self, reason: impl Into<String>) -> Result<T, ExprError> {
        Err(ExprError::new(self.at(), reason))
    }

    fn grown(&self, depth: usize) -> Result<usize, ExprError> {
        if depth >= MAX_DEPTH {
            self.error(format!("nested deeper than {MAX_DEPTH}"))
        } else {
            Ok(depth + 1)
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.ahead, Some((_, Token::Word(w))) if w == word)
    }

    fn expect(&mut self, token: &Token, what: &str) -> Result<(), ExprError> {
        match &self.ahead {
            Some((_, t)) if t == token => self.advance().map(drop),
            _ => self.error(format!("expected {what}")),
        }
    }

    fn conditional(&mut self) -> Result<Tree, ExprError> {
        self.depth = self.grown(self.depth)?;
        let (then, deep) = self.binary(0)?;
        let result = if self.is_word("if") {
            self.advance()?;
            let (condition, deep_condition) = self.binary(0)?;
            if !self.is_word("else") {
                return self.error("expected `else`: a conditional is written `a if b else c`");
            }
            self.advance()?;
            let (otherwise, deep_otherwise) = self.conditional()?;
            let depth = self.grown(deep.max(deep_condition).max(deep_otherwise))?;
            (conditional(condition, then, otherwise), depth)
        } else {
            (then, deep)
        };
        self.depth -= 1;
        Ok(result)
    }

    fn binary(&mut self, least: u8) -> Result<Tree, ExprError> {
        self.depth = self.grown(self.depth)?;
        let (mut left, mut deep) = self.unary()?;
        while let Some((_, Token::Op(op))) = self.ahead {
            let op: BinaryOp = op;
            if op.precedence() <= least {
                break;
            }
            self.advance()?;
            let (right, deep_right) = self.binary(op.precedence())?;
            deep = self.grown(deep.max(deep_right))?;
            left = Expr::Binary(op, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok((left, deep))
    }

    fn unary(&mut self) -> Result<Tree, ExprError> {
        let op = match self.ahead {
            Some((_, Token::Op(BinaryOp::Sub))) => UnaryOp::Neg,
            Some((_, Token::Bang)) => UnaryOp::Not,
            _ => return self.primary(),
        };
        self.depth = self.grown(self.depth)?;
        self.advance()?;
        let (operand, deep) = self.unary()?;
        self.depth -= 1;
        Ok((Expr::Unary(op, Box::new(operand)), self.grown(deep)?))
    }

    fn primary(&mut self) -> Result<Tree, ExprError> {
        let at = self.at();
        match self.advance()? {
            Some(Token::Number(n)) => Ok((Expr::Number(n), 1)),
            Some(Token::Quoted(name)) => Ok((Expr::Name(name), 1)),
            Some(Token::Open) => {
                let inner = self.conditional()?;
                self.expect(&Token::Close, "`)`")?;
                Ok(inner)
            }
            Some(Token::Word(word)) => {
                let called = matches!(self.ahead, Some((_, Token::Open)));
                match (word.as_str(), called) {
                    ("if", true) => self.if_function(),
                    ("if" | "else", _) => Err(ExprError::new(
                        at,
                        format!("expected a value before `{word}`"),
                    )),
                    (_, true) => match Function::from_name(&word) {
                        Some(function) => self.call(at, function),
                        None => Err(ExprError::new(at, format!("no function `{word}`"))),
                    },
                    (_, false) => Ok((Expr::Name(word), 1)),
                }
            }
            _ => Err(ExprError::new(at, "expected a number, a name or `(`")),
        }
    }

    fn if_function(&mut self) -> Result<Tree, ExprError> {
        self.expect(&Token::Open, "`(`")?;
        let (condition, a) = self.conditional()?;
        self.expect(&Token::Comma, "`,`: if(condition, then, else)")?;
        let (then, b) = self.conditional()?;
        self.expect(&Token::Comma, "`,`: if(condition, then, else)")?;
        let (otherwise, c) = self.conditional()?;
        self.expect(&Token::Close, "`)`")?;
        let depth = self.grown(a.max(b).max(c))?;
        Ok((conditional(condition, then, otherwise), depth))
    }

    fn call(&mut self, at: usize, function: Function) -> Result<Tree, ExprError> {
        self.expect(&Token::Open, "`(`")?;
        let mut args = Vec::new();
        let mut deep = 0;
        loop {
            let (arg, depth) = self.conditional()?;
            deep = deep.max(depth);
            args.push(arg);
            if matches!(self.ahead, Some((_, Token::Comma))) {
                self.advance()?;
            } else {
                break;
            }
        }
        self.expect(&Token::Close, "`,` or `)`")?;
        let (least, most) = function.arity();
        if args.len() < least || args.len() > most {
            return Err(ExprError::new(
                at,
                format!("{} takes {least} argument(s)", function.name()),
            ));
        }
        if function.takes_name() && !matches!(args[0], Expr::Name(_)) {
            return Err(ExprError::new(
                at,
                format!("{} takes the name of an event", function.name()),
            ));
        }
        if function == Function::StrcmpCpuid && !matches!(args[0], Expr::Name(_) | Expr::Number(_))
        {
            return Err(ExprError::new(at, "strcmp_cpuid_str takes the id of a CPU"));
        }
        Ok((Expr::Call(function, args), self.grown(deep)?))
    }
}

fn conditional(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr::If {
        condition: Box::new(condition),
        then: Box::new(then),
        otherwise: Box::new(otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        parse(text).expect(text).to_string()
    }

    #[test]
    fn precedence_and_conditionals() {
        assert_eq!(shown("1 + 2*3-4"), "1 + 2 * 3 - 4");
        assert_eq!(shown("(1+2)*(3-(4-5))"), "(1 + 2) * (3 - (4 - 5))");
        assert_eq!(shown("a > 5 & b > 10 | c"), "a > 5 & b > 10 | c");
        assert_eq!(
            shown("a if b else c if d else e"),
            "a if b else c if d else e"
        );
        assert_eq!(
            shown("(a if b else c) if d else e"),
            "(a if b else c) if d else e"
        );
        assert_eq!(shown("if(b, a, c)"), "a if b else c");
        assert_eq!(shown("-a*-2"), "-a * -2");
        assert_eq!(shown("1e3 + 0x10 + .5"), "1000 + 16 + 0.5");
    }

    #[test]
    fn names_as_their_makers_write_them() {
        for (text, name) in [
            ("UOPS_ISSUED.ANY", "UOPS_ISSUED.ANY"),
            (
                "rs_events:empty_cycles:c=1:i=1:e=1",
                "rs_events:empty_cycles:c=1:i=1:e=1",
            ),
            ("cpu/event=0x3c,umask=0x1/", "cpu/event=0x3c,umask=0x1/"),
            ("cpu_core/cycles/u", "cpu_core/cycles/u"),
            (
                r"cpu@UOPS_EXECUTED.THREAD\,cmask\=1@",
                "cpu/UOPS_EXECUTED.THREAD,cmask=1/",
            ),
            (r"topdown\-retiring", "topdown-retiring"),
            ("'branch-misses'", "branch-misses"),
            ("#SYSTEM_TSC_FREQ", "#SYSTEM_TSC_FREQ"),
        ] {
            assert_eq!(parse(text), Ok(Expr::name(name)), "{text}");
        }
        // Without terms a slash divides.
        assert_eq!(shown("cycles/instructions/2"), "cycles / instructions / 2");
        assert_eq!(shown("a/b==c/d"), "a / b == c / d");
        assert_eq!(shown("a:c==1"), "a:c == 1");
    }

    #[test]
    fn errors_say_where() {
        for (text, offset) in [
            ("", 0),
            ("1 +", 3),
            ("(1", 2),
            ("1 2", 2),
            ("a if b", 6),
            ("nope(1)", 0),
            ("ratio(1)", 0),
            ("total(1)", 0),
            ("'x", 0),
            ("a $ b", 2),
            ("1e999", 0),
            ("cpu@x", 0),
            ("else", 0),
        ] {
            assert_eq!(parse(text).expect_err(text).offset, offset, "{text}");
        }
    }

    #[test]
    fn depth_and_length_are_limited() {
        let n = 100_000;
        for text in [
            "(".repeat(30_000),
            "-".repeat(30_000),
            format!("{}1", "1+".repeat(30_000)),
            format!("{}1", "a if b else ".repeat(5_000)),
            "min(".repeat(10_000),
            format!("{}1", "1+".repeat(n)),
        ] {
            assert!(parse(&text).is_err());
        }
        assert!(parse(&format!("{}1", "1+".repeat(200))).is_ok());
    }
}
