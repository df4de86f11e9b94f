//! The rows of a FROM.

use super::super::tree::{From, JoinKind, On};
use super::{COLUMNS, Cell, Evaluator, Row, Scope, Value};

impl Evaluator<'_> {
    pub(super) fn from(&mut self, from: &From) -> Relation {
        match from {
            From::Table { name, alias } => {
                let rows =
                    self.tables.iter().find(|table| table.name == *name).map(|table| table.rows.clone());
                let relation = alias.clone().unwrap_or_else(|| (*name).to_string());
                let names = COLUMNS.iter().map(|column| (*column).to_string()).collect();
                Relation::new(relation, names, rows.unwrap_or_default())
            }
            From::Derived { query, alias } => {
                let rows = self.query(query);
                let names = (0..query.body.columns()).map(|place| format!("c{place}")).collect();
                Relation::new(alias.clone(), names, rows)
            }
            From::Join { kind, left, right, on } => {
                let (left, right) = (self.from(left), self.from(right));
                self.join(*kind, left, right, on)
            }
        }
    }

    fn join(&mut self, kind: JoinKind, left: Relation, right: Relation, on: &On) -> Relation {
        let keys: Vec<String> = match on {
            On::Using(keys) => keys.clone(),
            On::Natural => {
                let names = |relation: &Relation| -> Vec<String> {
                    relation
                        .nulls
                        .iter()
                        .filter(|cell| !cell.is_hidden)
                        .map(|cell| cell.name.clone())
                        .collect()
                };
                let right = names(&right);
                names(&left).into_iter().filter(|name| right.contains(name)).collect()
            }
            On::Cross | On::Condition(_) => Vec::new(),
        };
        let merged = |l: &Scope, r: &Scope| merge(kind, &keys, l, r);
        let nulls = merged(&left.nulls, &right.nulls);
        let mut rows = Vec::new();
        let mut met = vec![false; right.rows.len()];
        for l in &left.rows {
            let mut has_met = false;
            for (place, r) in right.rows.iter().enumerate() {
                let both: Scope = l.iter().chain(r).cloned().collect();
                let holds = match on {
                    On::Cross => true,
                    On::Condition(condition) => self.with_row(&both, |all| all.is_true(condition)),
                    On::Using(_) | On::Natural => keys.iter().all(|key| {
                        let (l, r) = (named(l, key), named(r, key));
                        l != Value::Null && l == r
                    }),
                };
                if holds {
                    rows.push(merged(l, r));
                    (has_met, met[place]) = (true, true);
                }
            }
            if !has_met && matches!(kind, JoinKind::Left | JoinKind::Full) {
                rows.push(merged(l, &right.nulls));
            }
        }
        if matches!(kind, JoinKind::Right | JoinKind::Full) {
            let alone = right.rows.iter().zip(&met).filter(|(_, met)| !**met);
            rows.extend(alone.map(|(r, _)| merged(&left.nulls, r)));
        }
        Relation { rows, nulls }
    }
}

/// Rows of a FROM, and one of NULLs.
pub(super) struct Relation {
    pub rows: Vec<Scope>,
    nulls: Scope,
}

impl Relation {
    fn new(relation: String, names: Vec<String>, rows: Vec<Row>) -> Relation {
        let row = |values: Row| -> Scope {
            let cells = names.iter().zip(values).map(|(name, value)| {
                let (relation, name) = (relation.clone(), name.clone());
                Cell { relation, name, value, is_hidden: false }
            });
            cells.collect()
        };
        let nulls = row(vec![Value::Null; names.len()]);
        Relation { rows: rows.into_iter().map(row).collect(), nulls }
    }
}

/// A row of a join, with the keys of both sides merged.
fn merge(kind: JoinKind, keys: &[String], left: &Scope, right: &Scope) -> Scope {
    let is_key = |cell: &Cell| !cell.is_hidden && keys.contains(&cell.name);
    let mut row = Scope::new();
    let mut hidden = Scope::new();
    for cell in left {
        if !is_key(cell) {
            row.push(cell.clone());
            continue;
        }
        let (l, r) = (cell.value.clone(), named(right, &cell.name));
        let value = match kind {
            JoinKind::Inner | JoinKind::Left => l,
            JoinKind::Right => r,
            JoinKind::Full => {
                if l == Value::Null {
                    r
                } else {
                    l
                }
            }
        };
        row.push(Cell { relation: String::new(), name: cell.name.clone(), value, is_hidden: false });
        hidden.push(Cell { is_hidden: true, ..cell.clone() });
    }
    for cell in right {
        match is_key(cell) {
            true => hidden.push(Cell { is_hidden: true, ..cell.clone() }),
            false => row.push(cell.clone()),
        }
    }
    row.extend(hidden.into_iter().filter(|cell| !cell.relation.is_empty()));
    row
}

fn named(row: &Scope, name: &str) -> Value {
    let cell = row.iter().find(|cell| !cell.is_hidden && cell.name == name);
    cell.map_or(Value::Null, |cell| cell.value.clone())
}

/// What `*` shows.
pub(super) fn visible(row: &Scope) -> Row {
    row.iter().filter(|cell| !cell.is_hidden).map(|cell| cell.value.clone()).collect()
}
