//! Expressions from the grammar, by chance.

use fastrand::Rng;

use super::grammar::{KINDS, Kind};
use super::tree::Node;

/// What expressions may be made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Patterns that can fail.
    pub failing: bool,
    /// Patterns that leave open for which rows their operands are computed.
    pub guards: bool,
}

/// Makes expressions over the columns of relations.
#[derive(Debug)]
pub(super) struct Expressions {
    pub rng: Rng,
    pub limits: Limits,
    /// What stands before the names of columns: nothing, or an alias with its dot.
    pub aliases: Vec<&'static str>,
    /// Whether a pattern was used that leaves open for which rows its operands are computed.
    pub guarded: bool,
    /// Whether what is made is an element of an IN list: see [`Expressions::allows`].
    pub in_list: bool,
    /// Whether what is made is an operand of arithmetic: see [`Expressions::leaf`].
    pub in_arithmetic: bool,
}

impl Expressions {
    pub fn below(&mut self, n: usize) -> usize {
        self.rng.usize(0..n)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn one<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn kind(&mut self) -> Kind {
        match self.once_in(3) {
            true => self.one(&[Kind::Int, Kind::Text, Kind::Decimal]),
            false => self.one(&KINDS),
        }
    }

    /// An expression of any kind.
    pub fn any(&mut self, depth: usize) -> Node {
        let kind = self.kind();
        self.expression(kind, depth)
    }

    /// An expression whose patterns nest at most so deep.
    pub fn expression(&mut self, kind: Kind, depth: usize) -> Node {
        if depth == 0 {
            return self.leaf(kind);
        }
        let patterns = if self.once_in(6) { Kind::CHOICES } else { kind.patterns() };
        // Not every pattern is allowed: another is tried, and a leaf taken in the end.
        for _ in 0..8 {
            let pattern = self.one(patterns);
            let failing = pattern.starts_with('!');
            let pattern = pattern.trim_start_matches('!');
            let guard = pattern.starts_with('?');
            let pattern = pattern.trim_start_matches('?');
            if failing && !self.limits.failing || guard && !self.limits.guards || !self.allows(pattern) {
                continue;
            }
            self.guarded |= guard;
            return self.filled(kind, pattern, depth - 1);
        }
        self.leaf(kind)
    }

    /// Whether a pattern may stand here. DataFusion takes an element of an IN list for a constant where it can be computed over
    /// no rows, and CASE over no rows is a NULL without a look at its columns: `x NOT IN ('a', CASE …)` is then never true.
    fn allows(&self, pattern: &str) -> bool {
        !self.in_list || !(pattern.contains("CASE") || pattern.contains("coalesce"))
    }

    /// A column that is not constant, or an expression over one: keys should have several values.
    pub fn key(&mut self, kind: Kind) -> Node {
        match self.below(3) {
            0 => self.column(kind),
            _ => {
                let depth = 1 + self.below(2);
                self.expression(kind, depth)
            }
        }
    }

    pub fn column(&mut self, kind: Kind) -> Node {
        let name = self.one(kind.columns());
        self.named(kind, name)
    }

    /// A column of one of the relations. DataFusion computes expressions over a dictionary once an entry, also for entries that
    /// no row has: which may fail.
    pub fn named(&mut self, kind: Kind, name: &str) -> Node {
        self.guarded |= name == "c";
        let aliases = std::mem::take(&mut self.aliases);
        let alias = self.one(&aliases);
        self.aliases = aliases;
        Node::expression(kind, format!("{alias}{name}"), Vec::new())
    }

    /// A literal or a column. A literal NaN is no operand of arithmetic: where the other operand is NaN too, IEEE 754 leaves open which
    /// of the two is the result, and comparisons in DataFusion tell NaN of different signs apart.
    fn leaf(&mut self, kind: Kind) -> Node {
        if !self.once_in(5) {
            return self.column(kind);
        }
        let literal = self.one(kind.literals());
        let replaced = self.in_arithmetic && literal.contains("NaN");
        Node::expression(kind, if replaced { "1.5" } else { literal }, Vec::new())
    }

    /// The placeholders of a pattern replaced by operands; columns that it names get an alias.
    fn filled(&mut self, kind: Kind, pattern: &str, depth: usize) -> Node {
        let (mut text, mut children) = (String::new(), Vec::new());
        let mut letters = pattern.chars().peekable();
        while let Some(letter) = letters.next() {
            let around = (self.in_list, self.in_arithmetic);
            self.in_list |= text.contains(" IN (");
            self.in_arithmetic = kind == Kind::Float
                && [" + ", " - ", " * ", " / ", " % "].iter().any(|sign| pattern.contains(sign));
            let operand = match (letter, letters.peek()) {
                ('%', Some('n')) => Some(Node::text(self.below(12).to_string())),
                ('%', Some('s')) => Some(self.short_text()),
                ('%', Some('x')) => Some(self.operand(kind, depth)),
                ('%', Some(next)) => Kind::of(*next).map(|kind| self.operand(kind, depth)),
                _ => None,
            };
            (self.in_list, self.in_arithmetic) = around;
            match operand {
                Some(operand) => {
                    letters.next();
                    text.push_str("{}");
                    children.push(operand);
                }
                None => text.push(letter),
            }
        }
        let text = self.with_aliases(&text);
        Node::expression(kind, text, children)
    }

    fn operand(&mut self, kind: Kind, depth: usize) -> Node {
        let depth = if depth > 0 && self.once_in(2) { depth } else { 0 };
        self.expression(kind, depth)
    }

    /// A text that may be repeated: most are short.
    fn short_text(&mut self) -> Node {
        let name = self.one(&["w", "n", "c"]);
        self.named(Kind::Text, name)
    }

    /// Patterns name some columns, such as `d5`: where relations have aliases, they get one.
    fn with_aliases(&mut self, text: &str) -> String {
        const NAMED: [&str; 9] = ["d5", "d9", "d18", "d20", "i64", "i32", "dt", "k", "z"];
        if self.aliases == [""] {
            return text.into();
        }
        let mut result = String::new();
        let mut quoted = false;
        for word in text.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
            let name = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
            if !quoted && NAMED.contains(&name) {
                let aliases = self.aliases.clone();
                result.push_str(self.one(&aliases));
            }
            quoted ^= word.ends_with('\'');
            result.push_str(word);
        }
        result
    }
}
