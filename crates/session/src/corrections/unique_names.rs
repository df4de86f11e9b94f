//! Columns of a result may share a name: `SELECT *, v`, `SELECT count(*), count(*)`. DataFusion refuses such a list. A statement that it
//! refuses for that gets other names for the later ones, `v_1`, and what the statement gives back has the names that it wrote.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, SetExpr, Statement as SqlStatement, Value,
};

use crate::syntax::{Flow, Walk, call, normal, quoted, visit, visit_part};

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
#[derive(Debug, Default)]
pub(crate) struct OwnNames(HashMap<String, String>);

impl OwnNames {
    /// A plan whose columns have these names.
    pub fn restore(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
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
pub(crate) fn rename(statement: &mut Statement) -> OwnNames {
    let mut taken = Taken(HashSet::new());
    let _ = visit(statement, &mut taken);
    let mut renames = Renames { taken: taken.0, queries: 0, own: HashMap::new() };
    let _ = visit(statement, &mut renames);
    // What is written to a table or file keeps the other names.
    match statement {
        Statement::Statement(statement) if matches!(statement.as_ref(), SqlStatement::Query(_)) => {
            OwnNames(renames.own)
        }
        _ => OwnNames::default(),
    }
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

struct Renames {
    taken: HashSet<String>,
    /// Queries around.
    queries: usize,
    /// The names of the outermost query's columns, by those that they have got.
    own: HashMap<String, String>,
}

impl Walk for Renames {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        self.queries -= 1;
        // The first SELECT of several names the columns.
        let mut is_first = true;
        let mut bodies = vec![query.body.as_mut()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) => {
                    tell_casts_apart(select);
                    let renamed = self.select(select);
                    if is_first && self.queries == 0 {
                        self.own = renamed;
                    }
                    is_first = false;
                }
                SetExpr::SetOperation { left, right, .. } => bodies.extend([right.as_mut(), left.as_mut()]),
                _ => is_first = false,
            }
        }
        ControlFlow::Continue(())
    }
}

impl Renames {
    /// Gives the later ones of the columns of a SELECT that share a name others; the names by these.
    fn select(&mut self, select: &mut Select) -> HashMap<String, String> {
        let is_wildcard =
            |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        let has_wildcard = select.projection.iter().any(is_wildcard);
        let (mut seen, mut renamed) = (HashSet::new(), HashMap::new());
        for item in &mut select.projection {
            let (name, key) = match &*item {
                SelectItem::ExprWithAlias { alias, .. } => (normal(alias), normal(alias)),
                SelectItem::UnnamedExpr(expr) => named(expr),
                _ => continue,
            };
            let is_column = !matches!(&*item, SelectItem::UnnamedExpr(expr) if column_name(expr).is_none());
            if seen.insert(key) && !(has_wildcard && is_column) {
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

fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(normal(name)),
        Expr::CompoundIdentifier(path) => path.last().map(normal),
        Expr::Nested(inner) => column_name(inner),
        _ => None,
    }
}

/// What a column without a name is called, and what DataFusion tells it from others by: it leaves casts out.
fn named(expr: &Expr) -> (String, String) {
    match column_name(expr) {
        Some(name) => (name.clone(), name),
        None => (expr.to_string(), without_casts(expr)),
    }
}

fn without_casts(expr: &Expr) -> String {
    let mut bare = expr.clone();
    let _ = visit_part(&mut bare, &mut Bare);
    bare.to_string().to_lowercase()
}

struct Bare;

impl Walk for Bare {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        // DataFusion names numbers by their values, and a subquery in a list like any other.
        match expr {
            Expr::Value(value) => {
                if let Value::Number(number, _) = &mut value.value
                    && number.contains(['.', 'e', 'E'])
                    && let Ok(float) = number.parse::<f64>()
                {
                    *number = float.to_string();
                }
            }
            Expr::TypedString(written) => *expr = Expr::Value(written.value.clone()),
            Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) => {
                *expr = Expr::Identifier(quoted("<subquery>"));
            }
            _ => {}
        }
        if let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = expr {
            *expr = std::mem::replace(inner, Expr::value(Value::Null));
        }
        ControlFlow::Continue(())
    }
}

/// `sum(v)` and `sum(CAST(v AS bigint))` have one name as aggregates, too. A `coalesce` around a cast shows in the name, and is gone once
/// the plan is simplified.
fn tell_casts_apart(select: &mut Select) {
    let mut calls = Calls::default();
    let _ = visit_part(select, &mut calls);
    let several = calls.0.into_values().filter(|written| written.len() > 1);
    let wraps: HashMap<String, usize> = several
        .flat_map(|written| written.into_iter().enumerate().map(|(wraps, text)| (text, wraps)))
        .collect();
    if !wraps.is_empty() {
        let _ = visit_part(select, &mut Shown { wraps, within: Vec::new() });
    }
}

/// The calls of a SELECT, as they are written, by what they are without casts.
#[derive(Default)]
struct Calls(HashMap<String, Vec<String>>);

impl Walk for Calls {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Function(_) = expr {
            let (written, text) = (self.0.entry(without_casts(expr)).or_default(), expr.to_string());
            if !written.contains(&text) {
                written.push(text);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Writes `coalesce` around the casts of such calls, around those of each call once more.
struct Shown {
    /// How often, by how the call is written.
    wraps: HashMap<String, usize>,
    /// The calls around.
    within: Vec<usize>,
}

impl Walk for Shown {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Function(_) = expr {
            self.within.push(self.wraps.get(&expr.to_string()).copied().unwrap_or(0));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Function(_) => drop(self.within.pop()),
            Expr::Cast { .. } => {
                for _ in 0..self.within.iter().copied().max().unwrap_or(0) {
                    let inner = std::mem::replace(expr, Expr::value(Value::Null));
                    *expr = call("coalesce", vec![inner]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
