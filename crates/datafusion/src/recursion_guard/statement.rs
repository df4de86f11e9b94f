//! How deep a statement is, from its tokens.

use datafusion::common::config::Dialect;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Levels that are planned. DataFusion's time to plan grows with their square: this many take it a minute.
pub const LIMIT: usize = 12_000;
/// Subqueries inside each other in expressions. DataFusion's time to plan doubles with each: 20 take it seconds, 32 hours.
const SUBQUERIES: usize = 32;
/// Texts that are shorter are not deep whatever they say.
const SHORT: usize = 128;

/// How deep the trees of a statement may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// Levels of the trees that are planned, where long chains of AND and OR are balanced.
    pub planned: usize,
    /// At most so many levels has what the parser makes.
    pub parsed: usize,
    /// Queries that stand inside each other: DataFusion's time to plan some kinds doubles with each.
    pub queries: usize,
    /// Of these, subqueries in expressions.
    subqueries: usize,
}

impl Depth {
    /// Measures a statement; an error where it is too deep.
    pub fn of(sql: &str, dialect: &Dialect) -> Result<Depth> {
        if sql.len() <= SHORT {
            return Ok(Depth { planned: sql.len(), parsed: sql.len(), queries: 1, subqueries: 0 });
        }
        // What has no tokens, the parser refuses, and says so better.
        let dialect = dialect_from_str(dialect);
        let tokens = dialect.and_then(|dialect| Tokenizer::new(dialect.as_ref(), sql).tokenize().ok());
        let depth = measure(&tokens.unwrap_or_default());
        if depth.planned > LIMIT {
            return plan_err!(
                "the statement is nested too deeply: up to {} levels of operators, clauses and parentheses, and at most \
                 {LIMIT} are planned",
                depth.planned
            );
        }
        if depth.subqueries > SUBQUERIES {
            return plan_err!(
                "the statement is nested too deeply: {} subqueries inside each other in expressions, and at most \
                 {SUBQUERIES} are planned, as the time doubles with each",
                depth.subqueries
            );
        }
        Ok(depth)
    }
}

/// What is open: the statement or a query in parentheses, a list in parentheses, or a CASE.
#[derive(Debug, Default)]
struct Frame {
    kind: Kind,
    /// Whose commas and words separate levels of a plan.
    clause: Clause,
    /// The queries around it, and of these the ones that stand in an expression.
    queries: usize,
    subqueries: usize,
    /// Levels of plans: the queries of WITH and set operations below all, clauses, joins and the queries inside of one SELECT,
    /// and the most that another SELECT of the same set operations had.
    below: usize,
    chain: usize,
    longest: usize,
    /// Whether the first SELECT has begun.
    selects: bool,
    /// The deepest item so far.
    deepest: usize,
    /// Operators of this item since the last AND or OR, and the deepest that stands in parentheses there.
    own: usize,
    inner: usize,
    /// The deepest operand of AND or OR in this item, and how many there are.
    operand: usize,
    operands: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    #[default]
    Query,
    List,
    Case,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Clause {
    /// Its commas separate tables or queries, of which the next stands on the last.
    #[default]
    Tables,
    /// Its commas separate expressions.
    Expressions,
}

impl Frame {
    fn new(kind: Kind) -> Frame {
        Frame { kind, ..Frame::default() }
    }

    fn end_operand(&mut self) {
        self.operand = self.operand.max(self.own + self.inner);
        (self.own, self.inner) = (0, 0);
        self.operands += 1;
    }

    fn end_item(&mut self) {
        self.end_operand();
        // Balanced, a chain is as deep as its length has digits; ORs of ANDs are two chains.
        let balanced = 2 * self.operands.ilog2() as usize + 1;
        self.deepest = self.deepest.max(self.operand + balanced);
        (self.operand, self.operands) = (0, 0);
    }

    /// Another level of the plan.
    fn end_clause(&mut self, next: Clause) {
        self.end_item();
        self.chain += 1;
        self.clause = next;
    }

    /// UNION and the like.
    fn end_select(&mut self) {
        self.end_clause(Clause::Tables);
        self.longest = self.longest.max(std::mem::take(&mut self.chain));
        self.below += 1;
    }

    /// The levels of a query inside.
    fn add(&mut self, levels: usize) {
        match self.selects {
            true => self.chain += levels,
            false => self.below += levels,
        }
    }

    fn close(mut self) -> usize {
        self.end_item();
        self.below + self.longest.max(self.chain) + self.deepest
    }
}

fn measure(tokens: &[Token]) -> Depth {
    let (mut parsed, mut queries, mut subqueries) = (1, 1, 0);
    let mut open: Vec<Frame> = Vec::new();
    let mut frame = Frame::default();
    let mut tokens = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).peekable();
    while let Some(token) = tokens.next() {
        let word = match token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        parsed += usize::from(!is_operand(token));
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                frame.own += 1;
                let kind = match tokens.peek() {
                    Some(Token::Word(word)) if begins_query(word.keyword) => Kind::Query,
                    // Parentheses around a query, or around tables that are joined.
                    _ if frame.clause == Clause::Tables && frame.kind == Kind::Query => Kind::Query,
                    _ => Kind::List,
                };
                let level = frame.queries + usize::from(kind == Kind::Query);
                queries = queries.max(level + 1);
                let operand = kind == Kind::Query && frame.clause == Clause::Expressions;
                let inner = frame.subqueries + usize::from(operand);
                subqueries = subqueries.max(inner);
                open.push(std::mem::replace(&mut frame, Frame::new(kind)));
                (frame.queries, frame.subqueries) = (level, inner);
                frame.clause = if kind == Kind::List { Clause::Expressions } else { Clause::Tables };
            }
            Token::Word(_) if word == Keyword::CASE => {
                frame.own += 1;
                let around = (frame.queries, frame.subqueries);
                open.push(std::mem::replace(&mut frame, Frame::new(Kind::Case)));
                (frame.queries, frame.subqueries) = around;
                frame.clause = Clause::Expressions;
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                // A CASE that has no END is an error, which the parser tells.
                while frame.kind == Kind::Case && !open.is_empty() {
                    close(&mut frame, &mut open);
                }
                close(&mut frame, &mut open);
            }
            Token::Word(_) if word == Keyword::END && frame.kind == Kind::Case => {
                close(&mut frame, &mut open)
            }
            Token::Comma if frame.clause == Clause::Tables => frame.end_clause(Clause::Tables),
            Token::Comma | Token::SemiColon => frame.end_item(),
            Token::Word(_) => match word {
                Keyword::AND | Keyword::OR => frame.end_operand(),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE if frame.kind == Kind::Case => frame.end_item(),
                Keyword::FROM | Keyword::JOIN | Keyword::WITH if frame.kind == Kind::Query => {
                    frame.end_clause(Clause::Tables);
                }
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => frame.end_select(),
                // UNION ALL, UNION DISTINCT.
                Keyword::ALL | Keyword::DISTINCT => {}
                Keyword::SELECT
                | Keyword::VALUES
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::ON
                | Keyword::SET
                    if frame.kind == Kind::Query =>
                {
                    frame.end_clause(Clause::Expressions);
                    frame.selects |= word == Keyword::SELECT;
                }
                Keyword::NoKeyword => {}
                _ => frame.own += 1,
            },
            token => frame.own += usize::from(!is_operand(token)),
        }
    }
    while !open.is_empty() {
        close(&mut frame, &mut open);
    }
    Depth { planned: frame.close(), parsed, queries, subqueries }
}

/// Ends what is open: a query in parentheses is a part of the plan around it, all else of the item around it.
fn close(frame: &mut Frame, open: &mut Vec<Frame>) {
    let Some(outer) = open.pop() else { return };
    let inner = std::mem::replace(frame, outer);
    let (kind, levels) = (inner.kind, inner.close());
    match kind {
        Kind::Query => frame.add(levels),
        Kind::List | Kind::Case => frame.inner = frame.inner.max(levels),
    }
}

fn begins_query(keyword: Keyword) -> bool {
    matches!(keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::FROM | Keyword::TABLE)
}

/// Whether a token makes no level by itself.
fn is_operand(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword == Keyword::NoKeyword,
        Token::Number(..) | Token::Comma | Token::RParen | Token::RBracket | Token::RBrace => true,
        Token::SingleQuotedString(_) | Token::SemiColon | Token::EOF | Token::Whitespace(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(sql: &str) -> Depth {
        measure(
            &Tokenizer::new(&datafusion::sql::sqlparser::dialect::GenericDialect {}, sql).tokenize().unwrap(),
        )
    }

    fn planned(sql: &str) -> usize {
        depth(sql).planned
    }

    #[test]
    fn what_nests_is_counted_and_what_is_long_is_not() {
        let n = 1000;
        let list = |term: &str, between: &str| vec![term; n].join(between);
        for deep in [
            format!("select {}", list("a", " + ")),
            format!("select {}", list("a", " || ")),
            format!("select {} a", list("-", " ")),
            format!("select {}a{} from t", "f(1, ".repeat(n), ")".repeat(n)),
            format!("select {}a{}", "case when x and y then ".repeat(n), " end".repeat(n)),
            format!("select a{}", "[1]".repeat(n)),
            format!("select a{}", "::int".repeat(n)),
            format!("select * from {}t{}", "(select * from ".repeat(n), ")".repeat(n)),
            format!("select * from {}t{}", "(".repeat(n), ")".repeat(n)),
            format!("select * from t {}", list("join u on a = b", " ")),
            format!("with {} select 1", list("c as (select 1)", ", ")),
            list("select a, b from t", " union all "),
            format!("select {}a and b{} or c", "(not ".repeat(n), ")".repeat(n)),
        ] {
            assert!((n..20 * n).contains(&planned(&deep)), "{}: {deep:.80}", planned(&deep));
            assert!(depth(&deep).parsed >= n, "{deep:.80}");
        }
        // Tables between commas stand on each other in the plan, and side by side in what the parser makes.
        let tables = format!("select * from {}", list("t", ", "));
        assert!((n..20 * n).contains(&planned(&tables)), "{}", planned(&tables));
        for flat in [
            format!("select {} from t", list("a + 1", ", ")),
            format!("insert into t values {}", list("(1, -2, 'x')", ", ")),
            format!("select * from (values {}) v", list("(1, -2, 'x')", ", ")),
            format!("select 1 from t where {}", list("(a = 1 and b = 2)", " or ")),
            format!("select 1 from t where a in ({})", list("-1", ", ")),
            format!("select case {} else 0 end", list("when a = 1 then 2", " ")),
        ] {
            assert!(planned(&flat) < 60, "{}: {flat:.80}", planned(&flat));
        }
    }

    #[test]
    fn subqueries_in_expressions_are_counted_and_those_of_from_are_not() {
        for (sql, expected) in [
            ("select (select (select 1))", 2),
            ("select a from t where a in (select a from t where exists (select 1))", 2),
            ("select case when (select true) then f((select 1)) end", 1),
            ("select * from (select * from (select 1)) t join (select 2) u on true", 0),
            ("(select 1) union (select (select 2)) order by 1", 1),
            ("with c as (select (select 1)) select (select 2) from c, (select 3)", 1),
        ] {
            assert_eq!(depth(sql).subqueries, expected, "{sql}");
        }
    }

    #[test]
    fn texts_that_are_no_statements_have_a_depth_too() {
        for sql in ["", "case", "end end )", ") ] }", "select (case when", "( ( (", "and or and"] {
            assert!(planned(sql) < 20, "{sql}");
        }
    }
}
