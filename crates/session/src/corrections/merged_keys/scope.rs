//! The columns that a FROM brings, in their order, and what the merged ones stand for.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, Query, SelectItem, Statement as SqlStatement, TableFactor, TableWithJoins,
    WildcardAdditionalOptions, With,
};

use super::super::unique_names::{is_for_names, rename};
use super::write_merged;
use crate::syntax::{
    Flow, Walk, as_alias, call, constraint, last_name, normal, quoted, select_from, visit_part,
};

/// One relation of a FROM, as a query that has all of its columns.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    query: Query,
    /// What comes before the dot and its columns.
    qualifier: Vec<Ident>,
    columns: Vec<String>,
}

impl Relation {
    /// Its columns, where these are what a wildcard before its point means.
    pub fn items(&self, wildcard: &ObjectName) -> Option<Vec<SelectItem>> {
        let path = wildcard.0.iter().map(|part| part.as_ident().map(normal)).collect::<Option<Vec<_>>>()?;
        let own: Vec<String> = self.qualifier.iter().map(normal).collect();
        own.ends_with(&path)
            .then(|| self.columns.iter().map(|name| self.column(name)).map(SelectItem::UnnamedExpr).collect())
    }

    fn column(&self, name: &str) -> Expr {
        match self.qualifier.as_slice() {
            [] => Expr::Identifier(quoted(name)),
            path => Expr::CompoundIdentifier(path.iter().cloned().chain([quoted(name)]).collect()),
        }
    }

    /// Finds its columns; whether these are known.
    pub async fn plan(&mut self, state: &SessionState) -> bool {
        let statement = SqlStatement::Query(Box::new(self.query.clone()));
        let mut statement = Statement::Statement(Box::new(statement));
        let planned = match state.statement_to_plan(statement.clone()).await {
            // What the statement gets for the same reason, when it is planned.
            Err(error) if is_for_names(&error) => {
                rename(&mut statement, state);
                state.statement_to_plan(statement).await
            }
            planned => planned,
        };
        match planned {
            Ok(plan) => {
                self.columns = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
                true
            }
            Err(_) => false,
        }
    }
}

/// Collects the relations of joined tables. A subquery without a name gets one.
pub(super) fn relations(table: &mut TableWithJoins, named: &[&With], found: &mut Vec<Relation>) {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut table.relation).chain(joined) {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            relations(table_with_joins, named, found);
            continue;
        }
        let qualifier = match factor {
            TableFactor::Derived { alias: alias @ None, .. } => {
                let name = quoted(format!("kelpie: subquery {}", found.len()));
                *alias = Some(as_alias(name.clone()));
                vec![name]
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. } => vec![alias.name.clone()],
            TableFactor::Table { name, .. } => {
                name.0.iter().filter_map(ObjectNamePart::as_ident).cloned().collect()
            }
            _ => vec![],
        };
        let from = TableWithJoins { relation: factor.clone(), joins: vec![] };
        let mut query = select_from(vec![from]);
        query.with = with_needed(named, &mut query);
        found.push(Relation { query, qualifier, columns: vec![] });
    }
}

/// What a query needs of all that is named around it.
pub(crate) fn with_needed(named: &[&With], query: &mut Query) -> Option<With> {
    all_named(named).and_then(|with| needed(with, query))
}

/// All that the queries around name, the innermost of one name.
fn all_named(named: &[&With]) -> Option<With> {
    let mut all = (*named.last()?).clone();
    all.recursive = named.iter().any(|with| with.recursive);
    let tables = named.iter().flat_map(|with| &with.cte_tables);
    all.cte_tables = Vec::<Cte>::new();
    for table in tables {
        all.cte_tables.retain(|known| normal(&known.alias.name) != normal(&table.alias.name));
        all.cte_tables.push(table.clone());
    }
    Some(all)
}

/// Those of them that a query refers to: another may be the one that is looked at, and not planned by itself.
fn needed(mut with: With, query: &mut Query) -> Option<With> {
    let mut names = Names(Vec::new());
    let _ = visit_part(query, &mut names);
    let mut kept = vec![false; with.cte_tables.len()];
    // What a later one refers to comes before it, but where they refer to each other.
    for _ in 0..if with.recursive { with.cte_tables.len() } else { 1 } {
        for (table, kept) in with.cte_tables.iter_mut().zip(&mut kept).rev() {
            if !*kept && names.0.contains(&normal(&table.alias.name)) {
                *kept = true;
                let _ = visit_part(&mut table.query, &mut names);
            }
        }
    }
    let mut kept = kept.into_iter();
    with.cte_tables.retain(|_| kept.next().unwrap_or(true));
    (!with.cte_tables.is_empty()).then_some(with)
}

/// The names of tables.
struct Names(Vec<String>);

impl Walk for Names {
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let TableFactor::Table { name, .. } = factor {
            self.0.extend(last_name(name).map(normal));
        }
        ControlFlow::Continue(())
    }
}

/// Which rows a join keeps, and which columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Left,
    Right,
    Full,
    /// Only the columns of the left side.
    OnlyLeft,
    /// Only those of the right side.
    OnlyRight,
}

/// The kind of a join; of an inner one either key will do.
pub(super) fn kind(operator: &JoinOperator) -> Kind {
    match operator {
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Kind::Right,
        JoinOperator::FullOuter(_) => Kind::Full,
        JoinOperator::Semi(_)
        | JoinOperator::LeftSemi(_)
        | JoinOperator::Anti(_)
        | JoinOperator::LeftAnti(_) => Kind::OnlyLeft,
        JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_) => Kind::OnlyRight,
        _ => Kind::Left,
    }
}

/// A column that a name stands for.
#[derive(Debug, Clone)]
struct Column {
    name: String,
    expr: Expr,
    is_merged: bool,
}

/// The columns of a FROM in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope(Vec<Column>);

fn means(name: &Ident, column: &Column) -> bool {
    match name.quote_style {
        Some(_) => column.name == name.value,
        None => column.name.eq_ignore_ascii_case(&name.value),
    }
}

impl Scope {
    fn of(relation: &Relation) -> Scope {
        let column =
            |name: &String| Column { name: name.clone(), expr: relation.column(name), is_merged: false };
        let columns = relation.columns.iter().map(column);
        Scope(columns.collect())
    }

    pub fn extend(&mut self, other: Scope) {
        self.0.extend(other.0);
    }

    /// What a name of a merged column stands for.
    pub fn merged(&self, name: &Ident) -> Option<&Expr> {
        let mut known = self.0.iter().filter(|column| means(name, column));
        match (known.next(), known.next()) {
            (Some(column), None) if column.is_merged => Some(&column.expr),
            _ => None,
        }
    }

    /// The place of the only column of a name.
    fn place(&self, name: &Ident) -> Option<usize> {
        let mut places = self.0.iter().enumerate().filter(|(_, column)| means(name, column));
        match (places.next(), places.next()) {
            (Some((place, _)), None) => Some(place),
            _ => None,
        }
    }

    /// The columns of `*`.
    pub fn all(&self, options: &WildcardAdditionalOptions) -> Vec<SelectItem> {
        let mut left_out: Vec<Ident> = Vec::new();
        let single = |name: &ObjectName| last_name(name).cloned();
        match &options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => left_out.extend(single(name)),
            Some(ExcludeSelectItem::Multiple(names)) => left_out.extend(names.iter().filter_map(single)),
            None => {}
        }
        if let Some(except) = &options.opt_except {
            left_out.push(except.first_element.clone());
            left_out.extend(except.additional_elements.iter().cloned());
        }
        let replaced = options.opt_replace.iter().flat_map(|replace| &replace.items);
        let replaced: Vec<_> = replaced.collect();
        let columns = self.0.iter().filter(|column| !left_out.iter().any(|name| means(name, column)));
        let items = columns.map(|column| {
            let other = replaced.iter().find(|item| means(&item.column_name, column));
            match other {
                Some(item) => {
                    let mut expr = item.expr.clone();
                    write_merged(&mut expr, self);
                    SelectItem::ExprWithAlias { expr, alias: quoted(column.name.as_str()) }
                }
                None if column.is_merged => SelectItem::ExprWithAlias {
                    expr: column.expr.clone(),
                    alias: quoted(column.name.as_str()),
                },
                None => SelectItem::UnnamedExpr(column.expr.clone()),
            }
        });
        items.collect()
    }
}

/// Gives joins with merged keys a condition; the columns that they bring. `None` where a key is not one column of each side.
pub(super) fn join_all(
    table: &mut TableWithJoins,
    relations: &mut impl Iterator<Item = Relation>,
) -> Option<Scope> {
    let mut left = factor(&mut table.relation, relations)?;
    for join in &mut table.joins {
        let right = factor(&mut join.relation, relations)?;
        let kind = kind(&join.join_operator);
        let keys = match constraint(&mut join.join_operator) {
            Some(JoinConstraint::Using(names)) => {
                names.iter().map(|name| name.0.last()?.as_ident().cloned()).collect::<Option<Vec<_>>>()?
            }
            Some(JoinConstraint::Natural) => common(&left, &right),
            other => {
                let mut both = left.clone();
                both.extend(right.clone());
                if let Some(JoinConstraint::On(condition)) = other {
                    write_merged(condition, &both);
                }
                left = joined(left, right, &[], kind);
                continue;
            }
        };
        let places = keys.iter().map(|key| Some((left.place(key)?, right.place(key)?)));
        let places = places.collect::<Option<Vec<_>>>()?;
        let equal = places.iter().map(|(l, r)| equal(left.0[*l].expr.clone(), right.0[*r].expr.clone()));
        match equal.reduce(and) {
            Some(condition) => *constraint(&mut join.join_operator)? = JoinConstraint::On(condition),
            None => join.join_operator = JoinOperator::CrossJoin(JoinConstraint::None),
        }
        left = joined(left, right, &places, kind);
    }
    Some(left)
}

fn factor(factor: &mut TableFactor, relations: &mut impl Iterator<Item = Relation>) -> Option<Scope> {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => join_all(table_with_joins, relations),
        factor => {
            let relation = relations.next()?;
            if let (TableFactor::Derived { alias: alias @ None, .. }, [name]) =
                (factor, relation.qualifier.as_slice())
            {
                *alias = Some(as_alias(name.clone()));
            }
            Some(Scope::of(&relation))
        }
    }
}

/// The names that both sides have, in any case.
fn common(left: &Scope, right: &Scope) -> Vec<Ident> {
    let is_common =
        |column: &&Column| right.0.iter().any(|other| other.name.eq_ignore_ascii_case(&column.name));
    // Without quotes, so that it means both spellings.
    left.0.iter().filter(is_common).map(|column| Ident::new(column.name.as_str())).collect()
}

/// The columns of a join whose key columns lie at these places of its sides.
fn joined(mut left: Scope, mut right: Scope, places: &[(usize, usize)], kind: Kind) -> Scope {
    for (l, r) in places {
        let (l, r) = (&mut left.0[*l], &right.0[*r]);
        l.is_merged = true;
        match kind {
            Kind::Left | Kind::OnlyLeft => {}
            Kind::Right => l.expr = r.expr.clone(),
            Kind::Full => l.expr = call("coalesce", vec![l.expr.clone(), r.expr.clone()]),
            Kind::OnlyRight => {}
        }
    }
    match kind {
        Kind::OnlyLeft => left,
        Kind::OnlyRight => right,
        Kind::Left | Kind::Right | Kind::Full => {
            let keys: Vec<usize> = places.iter().map(|(_, r)| *r).collect();
            let mut place = 0;
            right.0.retain(|_| {
                place += 1;
                !keys.contains(&(place - 1))
            });
            left.extend(right);
            left
        }
    }
}

fn equal(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Eq, right: Box::new(right) }
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}
