//! Properties that hold for any formula and any counts.

use dioptra_metrics::expr::{BinaryOp, Expr, Function, UnaryOp, parse};
use dioptra_metrics::{Cell, Count, Environment, EventName, MetricSet, Mode, RecordedEvent};
use proptest::prelude::*;

const BINARY: [BinaryOp; 14] = [
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::And,
    BinaryOp::Less,
    BinaryOp::Greater,
    BinaryOp::LessEqual,
    BinaryOp::GreaterEqual,
    BinaryOp::Equal,
    BinaryOp::NotEqual,
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
];

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,3}",
        "[A-Z_]{1,6}(\\.[A-Z]{1,3})?(:c=[0-9])?",
        "cpu/event=0x[0-9a-f]{1,2},umask=0x1/u?",
        Just("if".to_owned()),
        Just("min".to_owned()),
        "[^\\x00-\\x1f]{1,8}",
    ]
}

fn any_expr() -> impl Strategy<Value = Expr> {
    let number = prop_oneof![
        (0u32..1_000_000).prop_map(f64::from),
        0.0..1e300f64,
        Just(f64::MIN_POSITIVE),
        Just(f64::MAX),
    ];
    let leaf = prop_oneof![
        number.prop_map(Expr::Number),
        any_name().prop_map(Expr::Name),
    ];
    leaf.prop_recursive(6, 64, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (prop::bool::ANY, boxed.clone())
                .prop_map(|(neg, a)| Expr::Unary(if neg { UnaryOp::Neg } else { UnaryOp::Not }, a)),
            (prop::sample::select(&BINARY), boxed.clone(), boxed.clone())
                .prop_map(|(op, a, b)| Expr::Binary(op, a, b)),
            (boxed.clone(), boxed.clone(), boxed).prop_map(|(condition, then, otherwise)| {
                Expr::If {
                    condition,
                    then,
                    otherwise,
                }
            }),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|a| Expr::Call(Function::Max, a)),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|a| Expr::Call(Function::Sum, a)),
            prop::collection::vec(inner, 2..3).prop_map(|a| Expr::Call(Function::Ratio, a)),
            any_name().prop_map(|n| Expr::Call(Function::HasEvent, vec![Expr::Name(n)])),
        ]
    })
}

/// Makes a set of one column over `events`.
fn one_column(formula: &str, events: &[&str]) -> MetricSet {
    let mut text = "schema = 1\nname = \"test\"\n".to_owned();
    for event in events {
        text.push_str(&format!("[[event]]\nname = \"{event}\"\n"));
    }
    text.push_str(&format!(
        "[[column]]\nname = \"the column\"\nformula = \"{formula}\"\n"
    ));
    MetricSet::from_toml("test", &text).unwrap_or_else(|e| panic!("{e}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_reads_back(expr in any_expr()) {
        let text = expr.to_string();
        prop_assert_eq!(parse(&text), Ok(expr), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        if let Ok(expr) = parse(&text) {
            prop_assert_eq!(parse(&expr.to_string()), Ok(expr));
        }
        let _ = EventName::parse(&text);
        let _ = MetricSet::from_toml("x", &text);
    }

    /// Words of the language in any order find more than random letters.
    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(
            prop::sample::select(&["a", "1", "0x", "if", "else", "(", ")", ",", "min(", "-", "!", "/", "cpu/", "@", "'", "\\", ":", "=", "<", "total(", "e9", "."][..]),
            0..40,
        )
    ) {
        if let Ok(expr) = parse(&words.concat()) {
            prop_assert_eq!(parse(&expr.to_string()), Ok(expr));
        }
    }

    /// No counts, however odd, cause a panic, a value that is not finite or an error that is NaN.
    #[test]
    fn any_counts_give_a_cell(
        values in prop::collection::vec((0u64..5, prop_oneof![Just(0.0), -1e300..1e300f64, Just(f64::MAX)]), 4)
    ) {
        let set = one_column(
            "(a / b if c > d else min(a, b - c) * max(c, d)) + ratio(a, d) + a % b + (a & c) + abs(b) - sum(c, d)",
            &["a", "b", "c", "d"],
        );
        let recorded = ["a", "b", "c", "d"].map(RecordedEvent::named);
        let bound = set.bind(&recorded, &Environment::new());
        let counts: Vec<Count> = values
            .iter()
            .map(|(samples, value)| Count { samples: *samples, value: *value, variance: value * value })
            .collect();
        for mode in [Mode::Exact, Mode::Gooda] {
            let mut evaluator = bound.evaluator(&counts, mode);
            match &evaluator.row(&counts)[0] {
                Cell::Value { value, error, .. } => {
                    prop_assert!(value.is_finite() && !error.is_nan());
                }
                Cell::Undefined => {}
                Cell::Missing(names) => prop_assert!(false, "{:?}", names),
            }
        }
    }

    /// The terms of a sum add up, and so do rows: every linear formula is as exact as its counts.
    #[test]
    fn linear_formulas_add_up(rows in prop::collection::vec((0u64..1000, 0u64..1000), 1..20)) {
        let set = one_column("sum(cycles(3 * a), 5 * b)", &["a", "b"]);
        let recorded = ["a", "b"].map(RecordedEvent::named);
        let bound = set.bind(&recorded, &Environment::new());
        let counts = |a: u64, b: u64| [Count::sampled(a, a * 100, 1.0), Count::sampled(b, b * 7, 1.0)];
        let totals = rows.iter().fold((0, 0), |t, r| (t.0 + r.0, t.1 + r.1));
        let totals = counts(totals.0, totals.1);
        let mut evaluator = bound.evaluator(&totals, Mode::Exact);
        let mut sum = 0.0;
        for (a, b) in rows {
            sum += evaluator.row(&counts(a, b))[0].value().expect("both are recorded");
        }
        prop_assert_eq!(Some(sum), evaluator.row(&totals)[0].value());
    }
}

/// A small generator of random numbers, so that the test is the same each time.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Counts the arrivals of a Poisson process one by one: the numbers are exact, and independent of the formulas
    /// under test.
    fn poisson(&mut self, mean: f64) -> u64 {
        let (mut arrivals, mut time) = (0, 0.0);
        loop {
            time -= (1.0 - self.uniform()).ln();
            if time > mean {
                return arrivals;
            }
            arrivals += 1;
        }
    }
}

/// The standard error that one row states is the spread of the value over many rows drawn anew.
#[test]
fn errors_are_the_spread_of_repeated_runs() {
    let events = ["cycles", "instructions", "misses", "slots"];
    // Mean samples, period, scale for multiplexing.
    let truth = [
        (900.0, 2_000_003u64, 1.0),
        (1600.0, 2_000_003, 1.0),
        (400.0, 10_007, 8.5),
        (700.0, 100_003, 3.0),
    ];
    for formula in [
        "instructions / cycles",
        "1000 * misses / instructions",
        "misses * 450 + 6 * slots",
        // The same input on both sides of the fraction, correlated.
        "100 * misses / (misses + slots)",
        "(instructions - cycles) / (instructions + cycles)",
        "1 - slots / (slots + misses) - misses / (slots + misses) + cycles / instructions",
        "max(instructions, cycles) / min(slots, misses * 100)",
        "misses / cycles if instructions > cycles else slots",
        "instructions * instructions / cycles",
        "ratio(slots, cycles)",
    ] {
        let set = one_column(formula, &events);
        let recorded = events.map(RecordedEvent::named);
        let bound = set.bind(&recorded, &Environment::new());
        let counts = |samples: [u64; 4]| -> Vec<Count> {
            samples
                .iter()
                .zip(&truth)
                .map(|(&n, &(_, period, scale))| Count::sampled(n, n * period, scale))
                .collect()
        };
        let means = counts(truth.map(|(mean, ..)| mean as u64));
        let mut evaluator = bound.evaluator(&means, Mode::Exact);
        let Cell::Value { value, error, .. } = evaluator.row(&means)[0] else {
            panic!("{formula} has a value");
        };
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let runs = 2000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..runs {
            let drawn = counts(truth.map(|(mean, ..)| random.poisson(mean)));
            let v = evaluator.row(&drawn)[0].value().expect("has a value") - value;
            sum += v;
            squares += v * v;
        }
        let mean = sum / f64::from(runs);
        let spread = (squares / f64::from(runs) - mean * mean).sqrt();
        // The spread of 2000 runs is itself known to 1.6 %; first order adds a little.
        assert!(
            (error / spread - 1.0).abs() < 0.10,
            "{formula}: stated {error}, found {spread}"
        );
    }
}
