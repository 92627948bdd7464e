//! A tree to text that reads back as the same tree.

use std::fmt::{self, Display, Formatter};

use super::lex::{Lexer, Token};
use super::{Expr, UnaryOp};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        print(self, f, 0)
    }
}

/// Prints with parentheses if the expression binds no tighter than `above`.
fn print(expr: &Expr, f: &mut Formatter<'_>, above: u8) -> fmt::Result {
    const UNARY: u8 = 8;
    match expr {
        Expr::Number(n) => write!(f, "{n}"),
        Expr::Name(name) => print_name(name, f),
        Expr::Unary(op, a) => {
            f.write_str(match op {
                UnaryOp::Neg => "-",
                UnaryOp::Not => "!",
            })?;
            print(a, f, UNARY)
        }
        Expr::Binary(op, a, b) => {
            let own = op.precedence();
            let parens = own <= above;
            if parens {
                f.write_str("(")?;
            }
            print(a, f, own - 1)?;
            write!(f, " {} ", op.symbol())?;
            print(b, f, own)?;
            if parens {
                f.write_str(")")?;
            }
            Ok(())
        }
        Expr::If {
            condition,
            then,
            otherwise,
        } => {
            // Conditionals bind loosest; only the last part may be another one without parentheses.
            let parens = above > 0;
            if parens {
                f.write_str("(")?;
            }
            print_within_if(then, f)?;
            f.write_str(" if ")?;
            print_within_if(condition, f)?;
            f.write_str(" else ")?;
            print(otherwise, f, 0)?;
            if parens {
                f.write_str(")")?;
            }
            Ok(())
        }
        Expr::Call(function, args) => {
            write!(f, "{}(", function.name())?;
            for (i, arg) in args.iter().enumerate() {
                if i > 0 {
                    f.write_str(", ")?;
                }
                print(arg, f, 0)?;
            }
            f.write_str(")")
        }
    }
}

fn print_within_if(expr: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    if matches!(expr, Expr::If { .. }) {
        f.write_str("(")?;
        print(expr, f, 0)?;
        f.write_str(")")
    } else {
        print(expr, f, 0)
    }
}

fn print_name(name: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let mut lexer = Lexer::new(name);
    let bare = matches!(lexer.next(), Ok(Some((0, Token::Word(word)))) if word == name)
        && lexer.offset() == name.len()
        && !matches!(name, "if" | "else");
    if bare {
        return f.write_str(name);
    }
    f.write_str("'")?;
    for c in name.chars() {
        if matches!(c, '\'' | '\\') {
            f.write_str("\\")?;
        }
        write!(f, "{c}")?;
    }
    f.write_str("'")
}
