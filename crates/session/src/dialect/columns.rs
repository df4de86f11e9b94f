//! `COLUMNS('regular expression')`: an expression for each column of FROM whose name matches, in a list of SELECT; in WHERE, all of them.
//! `* RENAME (a AS b)`: each column under its own name or another one.

use std::ops::ControlFlow;

use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, IdentWithAlias, ObjectName, Query, RenameSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, WildcardAdditionalOptions,
};
use regex::Regex;

use super::functions::text;
use super::macros::Macros;
use super::short_forms::NOT;
use super::words::has;
use crate::corrections::{Which, seek_query, write_out_columns};
use crate::syntax::{
    Flow, Walk, ended, last_name, name_of, normal, quoted, select_from, statement_of, visit, visit_own,
};

const NAME: &str = "columns";

/// Writes such expressions of a statement out, the innermost ones first.
pub(crate) async fn expand(state: &SessionState, sql: &str, statement: &mut Statement) -> Result<()> {
    // What a macro stands for is not in the text.
    let has_macros = state.config().get_extension::<Macros>().is_some_and(|macros| macros.changes() > 0);
    let may_have =
        has_macros || has(sql, NAME) || has(sql, "rename") || has(sql, "like") || has(sql, "similar");
    if !may_have || state.scalar_functions().contains_key(NAME) {
        return Ok(());
    }
    loop {
        // The first SELECT with such an expression, and all that its FROM has.
        let all = seek_query(statement, &mut |query| Some(select_from(first(&mut query.body)?.from.clone())));
        let Some(all) = all else { return Ok(()) };
        let mut all = statement_of(all);
        write_out_columns(state, &mut all, Which::Merged).await?;
        let plan = state.statement_to_plan(all).await?;
        let columns = plan.schema().iter().map(|(table, field)| {
            let name = quoted(field.name());
            let expr = match table {
                Some(table) => Expr::CompoundIdentifier(vec![quoted(table.table()), name]),
                None => Expr::Identifier(name),
            };
            Known { table: table.map(|table| table.table().to_string()), name: field.name().clone(), expr }
        });
        ended(visit(statement, &mut Expand { columns: columns.collect() }))?;
    }
}

/// A column of FROM.
struct Known {
    table: Option<String>,
    name: String,
    expr: Expr,
}

/// The first SELECT of a query's body that has such an expression.
fn first(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => has_columns(select).then_some(select),
        SetExpr::SetOperation { left, right, .. } => first(left).or_else(|| first(right)),
        _ => None,
    }
}

fn has_columns(select: &mut Select) -> bool {
    let in_list = select.projection.iter_mut().filter_map(expr_of).any(|expr| pattern_of(expr).is_some());
    let renames = select.projection.iter().any(|item| renamed(item).is_some());
    in_list || renames || select.selection.as_mut().is_some_and(|condition| pattern_of(condition).is_some())
}

fn expr_of(item: &mut SelectItem) -> Option<&mut Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The first such call in an expression, that of a query within it left out.
fn pattern_of(expr: &mut Expr) -> Option<Function> {
    let mut found = None;
    let _ = visit_own(expr, &mut |expr| {
        let Some(call) = call_of(expr) else { return ControlFlow::Continue(()) };
        match &found {
            Some(found) if found != call => {
                let error = DataFusionError::Plan(format!("{found} and {call} in one expression"));
                return ControlFlow::Break(Some(error));
            }
            _ => found = Some(call.clone()),
        }
        ControlFlow::Continue(())
    });
    found
}

/// Such a call, where an expression is one.
fn call_of(expr: &Expr) -> Option<&Function> {
    match expr {
        Expr::Function(call) if name_of(call).as_deref() == Some(NAME) => Some(call),
        _ => None,
    }
}

/// Writes the first SELECT out.
struct Expand {
    columns: Vec<Known>,
}

impl Walk for Expand {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Some(select) = first(&mut query.body) else { return ControlFlow::Continue(()) };
        ControlFlow::Break(self.select(select).err())
    }
}

impl Expand {
    fn select(&self, select: &mut Select) -> Result<()> {
        let mut items = Vec::new();
        for mut item in std::mem::take(&mut select.projection) {
            if let Some(renamed) = renamed(&item) {
                items.extend(self.renamed(&renamed)?);
                continue;
            }
            let pattern = expr_of(&mut item).and_then(pattern_of);
            let Some(pattern) = pattern else {
                items.push(item);
                continue;
            };
            for (name, expr) in self.each(&mut item, &pattern)? {
                let alias = match &item {
                    SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
                    _ => quoted(name),
                };
                items.push(SelectItem::ExprWithAlias { expr, alias });
            }
        }
        select.projection = items;
        if let Some(condition) = &select.selection
            && let Some(pattern) = pattern_of(&mut condition.clone())
        {
            let mut item = SelectItem::UnnamedExpr(condition.clone());
            let all = self.each(&mut item, &pattern)?.into_iter();
            select.selection = all.map(|(_, expr)| Expr::Nested(Box::new(expr))).reduce(|left, right| {
                Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
            });
        }
        Ok(())
    }

    /// All columns of a star, some of them under other names.
    fn renamed(&self, star: &Renamed<'_>) -> Result<Vec<SelectItem>> {
        let is_named =
            |name: &ObjectName, known: &Known| last_name(name).is_some_and(|name| is_it(name, known));
        let excluded = match &star.options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => std::slice::from_ref(name),
            Some(ExcludeSelectItem::Multiple(names)) => names.as_slice(),
            None => &[],
        };
        let replaced = star.options.opt_replace.as_ref().map_or(&[][..], |replaced| &replaced.items);
        let of_table = |known: &&Known| {
            star.table.as_ref().is_none_or(|table| known.table.as_ref().is_some_and(|own| own == table))
        };
        let kept = |known: &&Known| !excluded.iter().any(|name| is_named(name, known));
        let columns: Vec<&Known> = self.columns.iter().filter(of_table).filter(kept).collect();
        if let Some(unknown) =
            star.names.iter().find(|name| !columns.iter().any(|known| is_it(&name.ident, known)))
        {
            return plan_err!("* RENAME: there is no column {}", unknown.ident);
        }
        let item = |known: &&Known| {
            let replaced = replaced.iter().find(|item| is_it(&item.column_name, known));
            let expr = replaced.map_or_else(|| known.expr.clone(), |replaced| replaced.expr.clone());
            let renamed = star.names.iter().find(|name| is_it(&name.ident, known));
            let alias = renamed.map_or_else(|| quoted(&known.name), |renamed| renamed.alias.clone());
            SelectItem::ExprWithAlias { expr, alias }
        };
        Ok(columns.iter().map(item).collect())
    }

    /// An item for each column that is meant.
    fn each(&self, item: &mut SelectItem, pattern: &Function) -> Result<Vec<(String, Expr)>> {
        let mut each = Vec::new();
        let meant = meant(pattern)?;
        for known in self.columns.iter().filter(|known| meant.has(&known.name)) {
            let Some(mut expr) = expr_of(item).map(|expr| expr.clone()) else { continue };
            let _ = visit_own(&mut expr, &mut |expr| {
                if call_of(expr).is_some() {
                    *expr = known.expr.clone();
                }
                ControlFlow::Continue(())
            });
            each.push((known.name.clone(), expr));
        }
        match each.is_empty() {
            true => plan_err!("{pattern} means none of the columns"),
            false => Ok(each),
        }
    }
}

/// A star some of whose columns get other names.
struct Renamed<'a> {
    /// The table whose columns are meant; all where there is none.
    table: Option<String>,
    names: &'a [IdentWithAlias],
    options: &'a WildcardAdditionalOptions,
}

fn renamed(item: &SelectItem) -> Option<Renamed<'_>> {
    let (table, options) = match item {
        SelectItem::Wildcard(options) => (None, options),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
            (Some(normal(last_name(name)?)), options)
        }
        _ => return None,
    };
    let names = match options.opt_rename.as_ref()? {
        RenameSelectItem::Single(name) => std::slice::from_ref(name),
        RenameSelectItem::Multiple(names) => names.as_slice(),
    };
    Some(Renamed { table, names, options })
}

fn is_it(name: &Ident, known: &Known) -> bool {
    normal(name).eq_ignore_ascii_case(&known.name)
}

/// Which columns are meant.
enum Meant {
    Matching(Regex),
    NotMatching(Regex),
    Listed(Vec<String>),
    AllBut(Vec<String>),
}

impl Meant {
    fn has(&self, name: &str) -> bool {
        let is_among = |names: &[String]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        match self {
            Meant::Matching(pattern) => pattern.is_match(name),
            Meant::NotMatching(pattern) => !pattern.is_match(name),
            Meant::Listed(names) => is_among(names),
            Meant::AllBut(names) => !is_among(names),
        }
    }
}

fn meant(call: &Function) -> Result<Meant> {
    let FunctionArguments::List(arguments) = &call.args else { return plan_err!("{call} names no columns") };
    match arguments.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => Ok(Meant::AllBut(vec![])),
        [FunctionArg::Unnamed(FunctionArgExpr::WildcardWithOptions(options))] => {
            let excluded = match &options.opt_exclude {
                Some(ExcludeSelectItem::Single(name)) => vec![name.clone()],
                Some(ExcludeSelectItem::Multiple(names)) => names.clone(),
                None => return plan_err!("{call}: only EXCLUDE may stand behind *"),
            };
            let name = |name: &ObjectName| last_name(name).map(normal);
            Ok(Meant::AllBut(excluded.iter().filter_map(name).collect()))
        }
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(names)))] => {
            match names.elem.iter().map(|name| text(name).map(ToString::to_string)).collect() {
                Some(names) => Ok(Meant::Listed(names)),
                None => plan_err!("{call}: the names must be written as texts"),
            }
        }
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(inner)))]
            if name_of(inner).as_deref() == Some(NOT) =>
        {
            let mut inner = inner.clone();
            inner.name = call.name.clone();
            match meant(&inner)? {
                Meant::Matching(pattern) => Ok(Meant::NotMatching(pattern)),
                other => Ok(other),
            }
        }
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(pattern))] => match text(pattern).map(Regex::new) {
            Some(Ok(pattern)) => Ok(Meant::Matching(pattern)),
            Some(Err(error)) => plan_err!("{call}: {error}"),
            None => plan_err!(
                "{call}: the names of columns are given by *, a regular expression or a list of texts"
            ),
        },
        _ => {
            plan_err!("{call}: the names of columns are given by *, a regular expression or a list of texts")
        }
    }
}
