//! Columns of a result may share a name: `SELECT *, v`, `SELECT count(*), count(*)`. DataFusion refuses such a list. A statement that it
//! refuses for that gets other names for the later ones, `v_1`, and what the statement gives back has the names that it wrote.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, Statement as SqlStatement, Subscript,
    Value,
};

use super::column_keys::ColumnKeys;
use super::sort_keys::{rename_beside_keys, show_names};
use crate::syntax::{Flow, Walk, call, change_exprs, has_expr, normal, quoted, taken, visit, visit_part};

/// Whether a statement was refused as two of its columns share a name.
pub(crate) fn is_for_names(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => matches!(
            error.as_ref(),
            SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. }
                | SchemaError::AmbiguousReference { .. }
        ),
        DataFusionError::Plan(text) => text.contains("require unique expression names"),
        _ => false,
    }
}

/// The names that a statement gives its columns, by those that they have got.
#[derive(Debug)]
pub(crate) struct OwnNames(HashMap<String, String>);

impl OwnNames {
    /// The plan of the statement, whose columns have these names, or those that it writes.
    pub fn restore(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => {
                let restored = plan.map_children(|rows| self.of_query(rows).map(Transformed::yes))?;
                Ok(restored.data)
            }
            plan => self.of_query(plan),
        }
    }

    fn of_query(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let columns = plan.schema().columns();
        if columns.iter().all(|column| !self.0.contains_key(&column.name)) {
            return Ok(plan);
        }
        let columns = columns.into_iter().enumerate().map(|(place, column)| match column.relation {
            // A qualifier of its own tells it from others of its name.
            None => {
                let name = self.0.get(&column.name).unwrap_or(&column.name).clone();
                PlanExpr::Column(column).alias_qualified(Some(format!("kelpie: {place}")), name)
            }
            Some(_) => PlanExpr::Column(column),
        });
        let columns: Vec<PlanExpr> = columns.collect();
        LogicalPlanBuilder::from(plan).project(columns)?.build()
    }
}

/// Gives columns that share a name others.
pub(crate) fn rename(statement: &mut Statement, state: &SessionState) -> OwnNames {
    renamed(statement, state, false)
}

/// Gives all columns that are computed names of their own.
pub(crate) fn rename_all(statement: &mut Statement, state: &SessionState) -> OwnNames {
    renamed(statement, state, true)
}

fn renamed(statement: &mut Statement, state: &SessionState, all: bool) -> OwnNames {
    let mut taken = Taken(HashSet::new());
    let _ = visit(statement, &mut taken);
    let keys = ColumnKeys::of(state);
    // Columns that share a name keep the other ones where they are written to a table or file.
    let may_share = matches!(statement, Statement::Statement(statement)
        if matches!(statement.as_ref(), SqlStatement::Query(_)));
    let mut renames = Renames { keys, taken: taken.0, queries: 0, may_share, all, own: HashMap::new() };
    let _ = visit(statement, &mut renames);
    OwnNames(renames.own)
}

/// The names that a statement gives.
struct Taken(HashSet<String>);

impl Walk for Taken {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.0.insert(normal(alias));
            }
        }
        ControlFlow::Continue(())
    }
}

struct Renames<'a> {
    keys: ColumnKeys<'a>,
    taken: HashSet<String>,
    /// Queries around.
    queries: usize,
    /// Whether columns of the outermost query may share a name.
    may_share: bool,
    /// Whether all that is computed gets a name.
    all: bool,
    /// The names of the outermost query's columns, by those that they have got.
    own: HashMap<String, String>,
}

impl Walk for Renames<'_> {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        self.queries -= 1;
        // The first SELECT of several names the columns.
        let mut is_first = true;
        let is_ordered = query.order_by.is_some();
        let mut bodies = vec![query.body.as_mut()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) => {
                    tell_casts_apart(select, self.keys);
                    let renamed = self.select(select, is_ordered);
                    if is_first && self.queries == 0 && self.may_share {
                        self.own = renamed;
                    }
                    is_first = false;
                }
                SetExpr::SetOperation { left, right, .. } => bodies.extend([right.as_mut(), left.as_mut()]),
                _ => is_first = false,
            }
        }
        tell_keys_apart(query, self.keys);
        let renamed = rename_beside_keys(query, &mut |name| self.unused(name));
        if self.queries == 0 {
            self.own.extend(renamed.into_iter().map(|renamed| (renamed.within, renamed.shown)));
        } else if !renamed.is_empty() {
            show_names(query, &renamed);
        }
        ControlFlow::Continue(())
    }
}

impl Renames<'_> {
    /// Gives the later ones of the columns of a SELECT that share a name others; the names by these.
    fn select(&mut self, select: &mut Select, is_ordered: bool) -> HashMap<String, String> {
        let is_wildcard =
            |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        let has_wildcard = select.projection.iter().any(is_wildcard);
        let (mut seen, mut renamed) = (HashSet::new(), HashMap::new());
        for item in &mut select.projection {
            let (name, key) = match &*item {
                SelectItem::ExprWithAlias { alias, .. } => (normal(alias), normal(alias)),
                SelectItem::UnnamedExpr(expr) => named(expr, self.keys),
                _ => continue,
            };
            let field = match &*item {
                SelectItem::UnnamedExpr(expr) => field_of(expr),
                _ => None,
            };
            let is_new_field = field.is_none_or(|field| seen.insert(field));
            let is_column = !matches!(&*item, SelectItem::UnnamedExpr(expr) if column_name(expr).is_none());
            let is_cast =
                matches!(&*item, SelectItem::UnnamedExpr(expr) if is_ordered && is_cast_column(expr));
            // No column of a table has a name of our own.
            let may_be_there = has_wildcard && is_column && !name.starts_with("kelpie: ");
            let is_named_anyway = self.all && !is_column;
            if seen.insert(key) && is_new_field && !is_cast && !may_be_there && !is_named_anyway {
                continue;
            }
            let other = self.unused(&name);
            let alias = quoted(other.as_str());
            let expr = match std::mem::replace(item, SelectItem::UnnamedExpr(Expr::value(Value::Null))) {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
                item => {
                    // Only these two have a name.
                    drop(item);
                    continue;
                }
            };
            *item = SelectItem::ExprWithAlias { expr, alias };
            renamed.insert(other, name);
        }
        renamed
    }

    fn unused(&mut self, name: &str) -> String {
        let other = (1..).map(|number| format!("{name}_{number}")).find(|other| !self.taken.contains(other));
        let other = other.unwrap_or_else(|| name.to_string());
        self.taken.insert(other.clone());
        other
    }
}

pub(super) fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(normal(name)),
        Expr::CompoundIdentifier(path) => path.last().map(normal),
        Expr::Nested(inner) => column_name(inner),
        _ => None,
    }
}

/// What DataFusion calls the field of a struct, however that is written: `s.a`, `s['a']`.
fn field_of(expr: &Expr) -> Option<String> {
    let (root, field) = match expr {
        Expr::CompoundIdentifier(path) => match path.as_slice() {
            [.., root, field] => (normal(root), normal(field)),
            _ => return None,
        },
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.as_slice() {
            [AccessExpr::Subscript(Subscript::Index { index: Expr::Value(index) })] => {
                (column_name(root)?, index.value.clone().into_string()?)
            }
            _ => return None,
        },
        Expr::Nested(inner) => return field_of(inner),
        _ => return None,
    };
    Some(format!("field {field} of {root}"))
}

/// What a column without a name is called, and what DataFusion tells it from others by: it leaves casts out.
fn named(expr: &Expr, keys: ColumnKeys<'_>) -> (String, String) {
    match column_name(expr) {
        Some(name) => (name.clone(), name),
        None => (expr.to_string(), keys.key(expr)),
    }
}

/// Whether an expression is a column that is cast. DataFusion calls it as the column, which ORDER BY may ask for beside it.
fn is_cast_column(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { expr: inner, .. } => column_name(inner).is_some() || is_cast_column(inner),
        Expr::Nested(inner) => is_cast_column(inner),
        _ => false,
    }
}

/// `sum(v)` and `sum(CAST(v AS bigint))` have one name as aggregates, too. A `coalesce` around a cast shows in the name, and is gone once
/// the plan is simplified.
fn tell_casts_apart(select: &mut Select, keys: ColumnKeys<'_>) {
    let is_call = |expr: &Expr| matches!(expr, Expr::Function(_));
    let wraps = told_apart(select, &is_call, keys);
    if !wraps.is_empty() {
        let _ = visit_part(select, &mut Shown { wraps, is_told: is_call, within: Vec::new() });
    }
}

/// So have `v::int` and `v::text` as keys of groups.
fn tell_keys_apart(query: &mut Query, keys: ColumnKeys<'_>) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty()) {
        return;
    }
    let is_cast = |expr: &Expr| matches!(expr, Expr::Cast { .. });
    let wraps = told_apart(select.as_mut(), &is_cast, keys);
    if !wraps.is_empty() {
        let mut shown = Shown { wraps, is_told: is_cast, within: Vec::new() };
        let _ = visit_part(select.as_mut(), &mut shown);
        let _ = visit_part(&mut query.order_by, &mut shown);
    }
}

/// How often casts are to be wrapped in expressions, as they are written, so that those are told apart which are the same without casts.
fn told_apart(
    select: &mut Select,
    is_told: &dyn Fn(&Expr) -> bool,
    keys: ColumnKeys<'_>,
) -> HashMap<String, usize> {
    // The expressions of the SELECT as they are written, by what they are without casts.
    let mut found: HashMap<String, Vec<(bool, String)>> = HashMap::new();
    change_exprs(select, &mut |expr| {
        if is_told(expr) {
            let has_cast = has_expr(expr, &|part| matches!(part, Expr::Cast { .. }));
            let (written, text) = (found.entry(keys.key(expr)).or_default(), (has_cast, expr.to_string()));
            if !written.contains(&text) {
                written.push(text);
            }
        }
    });
    let several = found.into_values().filter(|written| written.len() > 1);
    let wrapped = several.flat_map(|mut written| {
        // What has no cast cannot be wrapped, and is the first one wherever it stands.
        written.sort_by_key(|(has_cast, _)| *has_cast);
        written.into_iter().enumerate().map(|(wraps, (_, text))| (text, wraps))
    });
    wrapped.collect()
}

/// Writes `coalesce` around the casts of such expressions, around those of each once more.
struct Shown<Told> {
    /// How often, by how the expression is written.
    wraps: HashMap<String, usize>,
    is_told: Told,
    /// The expressions around.
    within: Vec<usize>,
}

impl<Told: Fn(&Expr) -> bool> Walk for Shown<Told> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if (self.is_told)(expr) {
            self.within.push(self.wraps.get(&expr.to_string()).copied().unwrap_or(0));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let around = self.within.iter().copied().max().unwrap_or(0);
        if (self.is_told)(expr) {
            self.within.pop();
        }
        if let Expr::Cast { .. } = expr {
            for _ in 0..around {
                let inner = taken(expr);
                *expr = call("coalesce", vec![inner]);
            }
        }
        ControlFlow::Continue(())
    }
}
