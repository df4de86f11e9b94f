//! A query as a tree whose expressions know their kind: a failing query is made smaller by putting part of an expression, or
//! a column, in the expression's place.

use super::grammar::Kind;

/// A part of a query.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Text as it stands.
    Text(String),
    /// A pattern in which each `{}` stands for the next child; with a kind, it is an expression.
    Pattern { kind: Option<Kind>, pattern: String, children: Vec<Node> },
    /// Items between separators, of which at least `least` must stay; without items nothing is printed.
    List { prefix: &'static str, separator: &'static str, least: usize, items: Vec<Node> },
}

impl Node {
    /// Text as it stands.
    pub fn text(text: impl Into<String>) -> Node {
        Node::Text(text.into())
    }

    /// A pattern that is no expression.
    pub fn pattern(pattern: impl Into<String>, children: Vec<Node>) -> Node {
        Node::Pattern { kind: None, pattern: pattern.into(), children }
    }

    /// An expression of a kind.
    pub fn expression(kind: Kind, pattern: impl Into<String>, children: Vec<Node>) -> Node {
        Node::Pattern { kind: Some(kind), pattern: pattern.into(), children }
    }

    /// Items of which at least one must stay.
    pub fn list(prefix: &'static str, separator: &'static str, items: Vec<Node>) -> Node {
        Node::List { prefix, separator, least: 1, items }
    }

    /// Items that may all go, the prefix with them.
    pub fn optional(prefix: &'static str, separator: &'static str, items: Vec<Node>) -> Node {
        Node::List { prefix, separator, least: 0, items }
    }

    /// The text.
    pub fn sql(&self) -> String {
        let mut sql = String::new();
        self.print(&mut sql);
        sql
    }

    fn print(&self, sql: &mut String) {
        match self {
            Node::Text(text) => sql.push_str(text),
            Node::Pattern { pattern, children, .. } => {
                let mut children = children.iter();
                for (i, text) in pattern.split("{}").enumerate() {
                    if i > 0
                        && let Some(child) = children.next()
                    {
                        child.print(sql);
                    }
                    sql.push_str(text);
                }
            }
            Node::List { prefix, separator, items, .. } => {
                for (i, item) in items.iter().enumerate() {
                    sql.push_str(if i == 0 { prefix } else { separator });
                    item.print(sql);
                }
            }
        }
    }

    /// Every tree that is one step smaller, large steps first.
    pub fn smaller(&self) -> Vec<Node> {
        let mut smaller = Vec::new();
        match self {
            Node::Text(_) => {}
            Node::Pattern { kind, pattern, children } => {
                if let Some(kind) = kind
                    && !children.is_empty()
                {
                    smaller.push(Node::expression(*kind, simplest(*kind), Vec::new()));
                    self.inner(*kind, &mut smaller);
                }
                for (i, child) in children.iter().enumerate() {
                    smaller.extend(child.smaller().into_iter().map(|child| Node::Pattern {
                        kind: *kind,
                        pattern: pattern.clone(),
                        children: replaced(children, i, child),
                    }));
                }
            }
            Node::List { prefix, separator, least, items } => {
                let list = |items| Node::List { prefix, separator, least: *least, items };
                if *least == 0 && items.len() > 1 {
                    smaller.push(list(Vec::new()));
                }
                if items.len() > *least {
                    smaller.extend((0..items.len()).map(|i| {
                        let mut items = items.clone();
                        items.remove(i);
                        list(items)
                    }));
                }
                for (i, item) in items.iter().enumerate() {
                    smaller.extend(item.smaller().into_iter().map(|item| list(replaced(items, i, item))));
                }
            }
        }
        smaller
    }

    /// The expressions of a kind inside this one, outermost first.
    fn inner(&self, wanted: Kind, found: &mut Vec<Node>) {
        let children: &[Node] = match self {
            Node::Text(_) => &[],
            Node::Pattern { children, .. } => children,
            Node::List { items, .. } => items,
        };
        for child in children {
            if matches!(child, Node::Pattern { kind: Some(kind), .. } if *kind == wanted) {
                found.push(child.clone());
            }
        }
        children.iter().for_each(|child| child.inner(wanted, found));
    }
}

/// What stands for an expression that does not matter.
fn simplest(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "TRUE",
        Kind::Int => "1",
        Kind::Float => "CAST(1.5 AS DOUBLE)",
        Kind::Decimal => "CAST(1.5 AS DECIMAL(5, 2))",
        Kind::Date => "DATE '2000-01-01'",
        Kind::Timestamp => "TIMESTAMP '2000-01-01 00:00:00'",
        Kind::Text => "'a'",
    }
}

fn replaced(nodes: &[Node], index: usize, node: Node) -> Vec<Node> {
    let mut nodes = nodes.to_vec();
    nodes[index] = node;
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_smaller_is_shorter_or_simpler() {
        let column = |name: &str| Node::expression(Kind::Int, name, Vec::new());
        let sum = Node::expression(Kind::Int, "({} + {})", vec![column("i8"), column("i16")]);
        let tree = Node::pattern("SELECT {} FROM x", vec![Node::list("", ", ", vec![sum, column("k")])]);
        assert_eq!(tree.sql(), "SELECT (i8 + i16), k FROM x");
        let smaller: Vec<String> = tree.smaller().iter().map(Node::sql).collect();
        for sql in
            ["SELECT k FROM x", "SELECT 1, k FROM x", "SELECT i16, k FROM x", "SELECT (i8 + i16) FROM x"]
        {
            assert!(smaller.iter().any(|s| s == sql), "{sql} in {smaller:?}");
        }
    }
}
