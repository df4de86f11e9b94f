//! FROM clauses: tables, derived tables and every kind of join, kept from exploding by bounds of their rows.

use super::super::queries::KINDS;
use super::generator::{Generator, Relation, Scope};
use super::tables::Column;
use super::tree::Tree;

/// How a join treats rows without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    Inner,
    Left,
    Right,
    Full,
    Cross,
    LeftSemi,
    LeftAnti,
    RightSemi,
    RightAnti,
}

impl Join {
    fn sql(self) -> &'static str {
        match self {
            Join::Inner => " JOIN ",
            Join::Left => " LEFT JOIN ",
            Join::Right => " RIGHT JOIN ",
            Join::Full => " FULL JOIN ",
            Join::Cross => " CROSS JOIN ",
            Join::LeftSemi => " LEFT SEMI JOIN ",
            Join::LeftAnti => " LEFT ANTI JOIN ",
            Join::RightSemi => " RIGHT SEMI JOIN ",
            Join::RightAnti => " RIGHT ANTI JOIN ",
        }
    }
}

/// How many rows of the other side a row meets at most.
#[derive(Debug, Clone, Copy)]
struct Matches {
    a_left_row: usize,
    a_right_row: usize,
}

impl Generator {
    /// ` FROM …`, what may be used of it, and conditions of its cross joins, for WHERE.
    pub fn from(&mut self, depth: usize) -> (Tree, Scope, Vec<Tree>) {
        let most = if depth == super::generator::DEPTH { 5 } else { 2 };
        let count = [1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5][self.below(14)].min(most);
        let (first, mut scope) = self.relation(depth);
        let mut joins = Vec::new();
        let mut conditions = Vec::new();
        for _ in 1..count {
            let Some((tree, joined, condition)) = self.join(&scope, depth) else { continue };
            joins.push(tree);
            conditions.extend(condition);
            scope = joined;
        }
        let joins = Tree::List { prefix: "", separator: "", least: 0, items: joins };
        (Tree::sequence(" FROM {}{}", vec![first, joins]), scope, conditions)
    }

    /// A table, common table expression or derived table under a new name.
    pub fn relation(&mut self, depth: usize) -> (Tree, Scope) {
        let relation = match depth > 0 && self.once_in(6) {
            true => {
                let count = 1 + self.below(3);
                let kinds: Vec<_> = (0..count).map(|_| KINDS[self.below(KINDS.len())]).collect();
                let (tree, columns, rows) = self.derived(&kinds, depth - 1);
                Relation { sql: Tree::sequence("({})", vec![tree]), columns, rows }
            }
            false => {
                let index = self.below(self.relations.len());
                self.relations[index].clone()
            }
        };
        let alias = self.alias();
        let named = |column: &Column| Column { name: format!("{alias}.{}", column.name), ..column.clone() };
        let scope = Scope { columns: relation.columns.iter().map(named).collect(), rows: relation.rows };
        (Tree::sequence("{} {}", vec![relation.sql, Tree::text(&alias)]), scope)
    }

    /// Another relation, joined; none where it would give too many rows.
    fn join(&mut self, left: &Scope, depth: usize) -> Option<(Tree, Scope, Vec<Tree>)> {
        let (relation, right) = self.relation(depth);
        let kinds = [
            (Join::Inner, 8),
            (Join::Left, 4),
            (Join::Right, 3),
            (Join::Full, 3),
            (Join::Cross, 2),
            (Join::LeftSemi, 1),
            (Join::LeftAnti, 1),
            (Join::RightSemi, 1),
            (Join::RightAnti, 1),
        ];
        let kinds: Vec<Join> = kinds.iter().flat_map(|(kind, times)| vec![*kind; *times]).collect();
        let kind = kinds[self.below(kinds.len())];
        let all = Matches { a_left_row: right.rows, a_right_row: left.rows };
        let limit = self.scale.joined_rows();
        if kind == Join::Cross {
            let joined = joined(left, &right, all, kind);
            let condition = self.once_in(2).then(|| self.keys(left, &right)).flatten();
            let condition = condition.map(|(keys, _)| Tree::List {
                prefix: "",
                separator: " AND ",
                least: 1,
                items: keys,
            });
            let tree = Tree::sequence("{}{}", vec![Tree::text(kind.sql()), relation]);
            return (joined.rows <= limit).then_some((tree, joined, condition.into_iter().collect()));
        }
        let both = joined(left, &right, all, Join::Inner);
        // Without an equality a nested-loop join compares all pairs.
        let (mut on, matches) = match both.rows <= limit && self.once_in(8) {
            true => (vec![self.inequality(left, &right)?], all),
            false => self.keys(left, &right)?,
        };
        if self.once_in(4) {
            on.push(self.predicate(&both, 1));
        }
        let joined = joined(left, &right, matches, kind);
        if joined.rows > limit || joined.columns.is_empty() {
            return None;
        }
        let on = Tree::List { prefix: " ON ", separator: " AND ", least: 1, items: on };
        Some((Tree::sequence("{}{}{}", vec![Tree::text(kind.sql()), relation, on]), joined, Vec::new()))
    }

    /// One to three equalities between columns of a kind, and how much they match.
    fn keys(&mut self, left: &Scope, right: &Scope) -> Option<(Vec<Tree>, Matches)> {
        let mut pairs: Vec<(&Column, &Column)> = Vec::new();
        for l in &left.columns {
            pairs.extend(right.columns.iter().filter(|r| r.kind == l.kind).map(|r| (l, r)));
        }
        if pairs.is_empty() {
            return None;
        }
        let mut matches = Matches { a_left_row: right.rows, a_right_row: left.rows };
        let mut keys = Vec::new();
        for _ in 0..[1, 1, 1, 1, 2, 2, 3][self.below(7)] {
            let (l, r) = pairs[self.below(pairs.len())];
            let (a, b) = (Tree::text(&l.name), Tree::text(&r.name));
            // NULLs match there, however many there are.
            if self.once_in(20) {
                keys.push(Tree::expression("({} IS NOT DISTINCT FROM {})", vec![a, b]));
                continue;
            }
            matches.a_left_row = matches.a_left_row.min(r.most);
            matches.a_right_row = matches.a_right_row.min(l.most);
            let shifted = l.kind == super::super::queries::Kind::Int && l.plain && r.plain;
            keys.push(match self.below(12) {
                0 if shifted => Tree::expression("{} + 1 = {}", vec![a, b]),
                1 => Tree::expression("{} = {}", vec![b, a]),
                _ => Tree::expression("{} = {}", vec![a, b]),
            });
        }
        Some((keys, matches))
    }

    fn inequality(&mut self, left: &Scope, right: &Scope) -> Option<Tree> {
        let l = left.columns.get(self.below(left.columns.len().max(1)))?;
        let others: Vec<&Column> = right.columns.iter().filter(|r| r.kind == l.kind).collect();
        if others.is_empty() {
            return None;
        }
        let r = others[self.below(others.len())];
        let operator = self.one(&["<", "<=", ">", ">=", "<>"]);
        let parts = vec![Tree::text(&l.name), Tree::text(operator), Tree::text(&r.name)];
        Some(Tree::expression("{} {} {}", parts))
    }
}

/// What is known of a join's result.
fn joined(left: &Scope, right: &Scope, matches: Matches, kind: Join) -> Scope {
    match kind {
        Join::LeftSemi | Join::LeftAnti => return left.clone(),
        Join::RightSemi | Join::RightAnti => return right.clone(),
        _ => {}
    }
    let (a_left, a_right) = (matches.a_left_row.max(1), matches.a_right_row.max(1));
    let times =
        |column: &Column, by: usize| Column { most: column.most.saturating_mul(by), ..column.clone() };
    let columns = left.columns.iter().map(|column| times(column, a_left));
    let columns = columns.chain(right.columns.iter().map(|column| times(column, a_right))).collect();
    let pairs =
        left.rows.saturating_mul(matches.a_left_row).min(right.rows.saturating_mul(matches.a_right_row));
    let alone = match kind {
        Join::Left => left.rows,
        Join::Right => right.rows,
        Join::Full => left.rows + right.rows,
        _ => 0,
    };
    Scope { columns, rows: pairs.saturating_add(alone) }
}
