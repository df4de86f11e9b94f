//! A query as a tree that knows which of its parts can be left out: printed as SQL, and made smaller.

/// A part of a query's text.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    /// As it stands.
    Text(String),
    /// One after the other.
    Sequence(Vec<Tree>),
    /// Can be left out.
    Optional(Box<Tree>),
    /// Items of which at least `least` must stay; without items, the prefix goes too.
    List { prefix: &'static str, separator: &'static str, least: usize, items: Vec<Tree> },
    /// An expression: NULL or any expression inside it may take its place.
    Expression(Vec<Tree>),
}

impl Tree {
    /// Text as it stands.
    pub fn text(text: impl Into<String>) -> Tree {
        Tree::Text(text.into())
    }

    /// A part that can be left out.
    pub fn optional(tree: Tree) -> Tree {
        Tree::Optional(Box::new(tree))
    }

    /// An expression from a pattern: each `{}` stands for the next part.
    pub fn expression(pattern: &str, parts: Vec<Tree>) -> Tree {
        Tree::Expression(fill(pattern, parts))
    }

    /// The same for what is no expression.
    pub fn sequence(pattern: &str, parts: Vec<Tree>) -> Tree {
        Tree::Sequence(fill(pattern, parts))
    }

    /// The text.
    pub fn sql(&self) -> String {
        let mut sql = String::new();
        self.print(&mut sql);
        sql
    }

    fn print(&self, sql: &mut String) {
        match self {
            Tree::Text(text) => sql.push_str(text),
            Tree::Sequence(parts) | Tree::Expression(parts) => parts.iter().for_each(|p| p.print(sql)),
            Tree::Optional(part) => part.print(sql),
            Tree::List { prefix, separator, items, .. } => {
                for (i, item) in items.iter().enumerate() {
                    sql.push_str(if i == 0 { prefix } else { separator });
                    item.print(sql);
                }
            }
        }
    }

    /// Every tree that is one step smaller, large steps first.
    pub fn smaller(&self) -> Vec<Tree> {
        match self {
            Tree::Text(_) => Vec::new(),
            Tree::Sequence(parts) => inside(parts, &Tree::Sequence),
            Tree::Optional(part) => {
                let mut smaller = vec![Tree::text("")];
                smaller.extend(part.smaller().into_iter().map(Tree::optional));
                smaller
            }
            Tree::List { prefix, separator, least, items } => {
                let list = |items| Tree::List { prefix, separator, least: *least, items };
                let without = |i: usize| {
                    let others = items.iter().enumerate().filter(|(other, _)| *other != i);
                    list(others.map(|(_, item)| item.clone()).collect())
                };
                let mut smaller = Vec::new();
                if items.len() > *least {
                    smaller.extend((0..items.len()).rev().map(without));
                }
                smaller.extend(inside(items, &list));
                smaller
            }
            Tree::Expression(parts) => {
                let mut smaller = Vec::new();
                if self.sql() != "NULL" {
                    smaller.push(Tree::Expression(vec![Tree::text("NULL")]));
                }
                parts.iter().for_each(|part| part.expressions(&mut smaller));
                smaller.extend(inside(parts, &Tree::Expression));
                smaller
            }
        }
    }

    /// The outermost expressions of a part; those of subqueries are of another scope.
    fn expressions(&self, found: &mut Vec<Tree>) {
        match self {
            Tree::Expression(_) => found.push(self.clone()),
            Tree::Sequence(parts) => parts.iter().for_each(|part| part.expressions(found)),
            Tree::Text(_) | Tree::Optional(_) | Tree::List { .. } => {}
        }
    }
}

fn fill(pattern: &str, parts: Vec<Tree>) -> Vec<Tree> {
    let mut filled = Vec::new();
    let mut parts = parts.into_iter();
    for (i, text) in pattern.split("{}").enumerate() {
        if i > 0 {
            filled.extend(parts.next());
        }
        if !text.is_empty() {
            filled.push(Tree::text(text));
        }
    }
    filled
}

/// The trees where one of the parts is a step smaller.
fn inside(parts: &[Tree], whole: &dyn Fn(Vec<Tree>) -> Tree) -> Vec<Tree> {
    let mut smaller = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        for replacement in part.smaller() {
            let mut parts = parts.to_vec();
            parts[i] = replacement;
            smaller.push(whole(parts));
        }
    }
    smaller
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_left_out_one_at_a_time() {
        let sum =
            Tree::expression("({} + {})", vec![Tree::Expression(vec![Tree::text("a")]), Tree::text("1")]);
        let list = Tree::List { prefix: " WHERE ", separator: " AND ", least: 0, items: vec![sum] };
        let tree = Tree::sequence("SELECT 1{}{}", vec![list, Tree::optional(Tree::text(" LIMIT 3"))]);
        assert_eq!(tree.sql(), "SELECT 1 WHERE (a + 1) LIMIT 3");
        let smaller: Vec<String> = tree.smaller().iter().map(Tree::sql).collect();
        assert_eq!(
            smaller,
            [
                "SELECT 1 LIMIT 3",
                "SELECT 1 WHERE NULL LIMIT 3",
                "SELECT 1 WHERE a LIMIT 3",
                "SELECT 1 WHERE (NULL + 1) LIMIT 3",
                "SELECT 1 WHERE (a + 1)",
            ]
        );
    }
}
