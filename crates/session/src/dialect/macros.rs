//! Macros: names for expressions and queries with parameters, written out where they are called. What a session defines by CREATE MACRO
//! and what `functions.sql` defines for all sessions are the same.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DropFunction, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, MacroArg, MacroDefinition,
    ObjectName, ObjectNamePart, Query, Statement as Sql, TableFactor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use parking_lot::RwLock;

use super::lambdas;
use super::macro_clauses::{has_aggregates, with_clauses};
use super::words::{Words, has};
use crate::syntax::{Flow, Walk, as_alias, change_exprs, ended, flow, name_of, normal, quoted, visit_part};

/// Parts that all macros of a statement may add to it, and how deep what one makes may be: names that double what they stand for
/// would fill any memory, and the stack that a statement gets goes by its text.
const MOST_PARTS: usize = 100_000;
const MOST_LEVELS: usize = 120;

/// A macro.
#[derive(Debug, Clone)]
pub(super) struct Macro {
    parameters: Vec<Parameter>,
    definition: MacroDefinition,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    default: Option<Expr>,
}

/// The macros of a session, by their names: of expressions and of tables, each of them with as many definitions as it has.
#[derive(Debug, Default)]
pub(crate) struct Macros {
    named: RwLock<HashMap<String, Vec<Arc<Macro>>>>,
    changes: AtomicU64,
}

/// The statements of a CREATE MACRO that defines a macro for several numbers of arguments, `f(a) AS …, (a, b) AS …`: one for each. Nothing of
/// others.
pub(crate) fn overloads(sql: &str) -> Option<Vec<String>> {
    if !has(sql, "create") || !has(sql, "macro") && !has(sql, "function") {
        return None;
    }
    let words = Words::of(sql, &GenericDialect)?;
    let mut place = 1;
    while words.is_any(place, &["or", "replace", "temp", "temporary"]) {
        place += 1;
    }
    if !words.is(0, "create") || !words.is_any(place, &["macro", "function"]) {
        return None;
    }
    let open = words.after_name(place + 1).filter(|open| words.is_token(*open, &Token::LParen))?;
    let closing = words.closing(open)?;
    let is_table = words.is(closing + 1, "as") && words.is(closing + 2, "table");
    // Behind a comma within a query, `(a) AS b` is a column.
    let begins = |comma: usize| {
        let behind = words.closing(comma + 1).filter(|_| words.is_token(comma + 1, &Token::LParen));
        let is_definition =
            |behind: usize| words.is(behind, "as") && (!is_table || words.is(behind + 1, "table"));
        words.is_token(comma, &Token::Comma) && behind.is_some_and(|behind| is_definition(behind + 1))
    };
    let (mut from, mut parts) = (open, Vec::new());
    loop {
        let end = words.find(words.closing(from)? + 1, begins);
        parts.push(format!("{}{}", &sql[..words.byte(open)], &sql[words.byte(from)..words.byte(end)]));
        if !words.is_token(end, &Token::Comma) {
            break;
        }
        from = end + 1;
    }
    (parts.len() > 1).then_some(parts)
}

impl Macros {
    /// Follows CREATE MACRO and DROP FUNCTION of a macro; whether the statement was one of these.
    /// Several statements define one macro for several numbers of arguments.
    pub fn follow(&self, statements: &[Statement]) -> Result<bool> {
        let mut made: Vec<Macro> = Vec::with_capacity(statements.len());
        for statement in statements {
            let Statement::Statement(statement) = statement else { return Ok(false) };
            let Sql::CreateMacro { or_replace, name, args, definition, .. } = statement.as_ref() else {
                return self.drop(statement);
            };
            let own = Macro::new(args.as_deref().unwrap_or_default(), definition.clone())?;
            if made.iter().any(|known| known.is_table() != own.is_table()) {
                return plan_err!("{name} is a macro of an expression or one of a table, and not both");
            }
            if made.iter().any(|known| known.parameters.len() == own.parameters.len()) {
                return plan_err!(
                    "the macro {name} has two definitions with {} parameters",
                    own.parameters.len()
                );
            }
            made.push(own);
            if made.len() == statements.len() {
                self.define(single(name)?, made, *or_replace)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn define(&self, name: String, made: Vec<Macro>, replaces: bool) -> Result<()> {
        let is_table = made.iter().any(Macro::is_table);
        let mut macros = self.named.write();
        let known = macros.entry(name.clone()).or_default();
        if !replaces && known.iter().any(|known| known.is_table() == is_table) {
            return plan_err!("a macro named {name} exists already: CREATE OR REPLACE MACRO replaces it");
        }
        known.retain(|known| known.is_table() != is_table);
        known.extend(made.into_iter().map(Arc::new));
        self.changes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn drop(&self, statement: &Sql) -> Result<bool> {
        match statement {
            Sql::DropFunction(DropFunction { func_desc, .. }) => match func_desc.as_slice() {
                [only] => {
                    // A function of a schema is none.
                    let Ok(name) = single(&only.name) else { return Ok(false) };
                    let removed = self.named.write().remove(&name);
                    self.changes.fetch_add(1, Ordering::SeqCst);
                    Ok(removed.is_some())
                }
                _ => Ok(false),
            },
            _ => Ok(false),
        }
    }

    /// The definition that a call of a name means.
    fn find(&self, name: &str, args: &[FunctionArg], is_table: bool) -> Result<Option<Arc<Macro>>> {
        let all = self.named.read().get(name).cloned().unwrap_or_default();
        let of_kind: Vec<_> = all.iter().filter(|one| one.is_table() == is_table).cloned().collect();
        // That there is none of this kind, whoever asks says better.
        let mut all = if of_kind.is_empty() { all } else { of_kind };
        if all.len() > 1 {
            all.retain(|one| one.values(name, args).is_ok());
            match all.len() {
                0 => {
                    return plan_err!(
                        "the macro {name} has no definition for these {} arguments",
                        args.len()
                    );
                }
                1 => {}
                _ => {
                    return plan_err!(
                        "several definitions of the macro {name} take these {} arguments",
                        args.len()
                    );
                }
            }
        }
        Ok(all.pop())
    }

    fn is_empty(&self) -> bool {
        self.named.read().is_empty()
    }

    /// How often they have changed: a plan that was made before does not mean what its text means now.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

fn single(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Ok(normal(name)),
        _ => plan_err!("{name}: macros have no schema"),
    }
}

/// The macros that every session has, by name.
static KNOWN: LazyLock<HashMap<&'static str, Vec<Known>>> = LazyLock::new(|| {
    let mut named: HashMap<&'static str, Vec<Known>> = HashMap::new();
    for text in include_str!("functions.sql").split(CREATE).skip(1) {
        if let Some((name, parameters)) = head_of(text) {
            named.entry(name).or_default().push(Known { parameters, text, made: OnceLock::new() });
        }
    }
    named
});

/// What each statement of the file begins with.
const CREATE: &str = "CREATE MACRO ";

/// A macro of the file. Most statements call none or a few of them, and to parse all takes four milliseconds.
struct Known {
    parameters: usize,
    /// Its statement, behind the words that it begins with.
    text: &'static str,
    made: OnceLock<Option<Macro>>,
}

impl Known {
    fn parsed(&self) -> Option<Macro> {
        let statements = Parser::parse_sql(&GenericDialect, &format!("{CREATE}{}", self.text)).ok()?;
        let Sql::CreateMacro { args, mut definition, .. } = statements.into_iter().next()? else {
            return None;
        };
        if let MacroDefinition::Expr(body) = &mut definition {
            change_exprs(body, &mut |expr| lambdas::rewrite(expr));
        }
        Macro::new(args.as_deref().unwrap_or_default(), definition).ok()
    }
}

/// The name and the number of parameters that a statement of the file begins with. No parameter has a default there.
fn head_of(text: &str) -> Option<(&str, usize)> {
    let (name, rest) = text.split_once('(')?;
    let (parameters, _) = rest.split_once(')')?;
    let count = if parameters.trim().is_empty() { 0 } else { parameters.split(',').count() };
    Some((name.trim_matches('"'), count))
}

/// A macro that every session has.
pub(super) fn known(name: &str, arguments: usize) -> Option<&'static Macro> {
    let known = KNOWN.get(name)?.iter().find(|known| known.parameters == arguments)?;
    known.made.get_or_init(|| known.parsed()).as_ref()
}

impl Macro {
    fn is_table(&self) -> bool {
        matches!(self.definition, MacroDefinition::Table(_))
    }

    fn new(args: &[MacroArg], definition: MacroDefinition) -> Result<Macro> {
        let mut parameters: Vec<Parameter> = Vec::with_capacity(args.len());
        for arg in args {
            let name = normal(&arg.name);
            if parameters.iter().any(|known| known.name == name) {
                return plan_err!("the macro has two parameters named {name}");
            }
            if arg.default_expr.is_none() && parameters.last().is_some_and(|last| last.default.is_some()) {
                return plan_err!("the parameter {name} has no default, and one before it has");
            }
            parameters.push(Parameter { name, default: arg.default_expr.clone() });
        }
        Ok(Macro { parameters, definition })
    }

    /// What its parameters stand for in a call.
    fn values(&self, name: &str, args: &[FunctionArg]) -> Result<HashMap<String, Expr>> {
        let mut values: HashMap<String, Expr> = HashMap::new();
        for (place, arg) in args.iter().enumerate() {
            let (parameter, value) = match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if values.len() == place => {
                    (self.parameters.get(place), value)
                }
                FunctionArg::Named { name: of, arg: FunctionArgExpr::Expr(value), .. } => {
                    (self.parameters.iter().find(|known| known.name == normal(of)), value)
                }
                other => return plan_err!("{other} is no argument of the macro {name}"),
            };
            let Some(parameter) = parameter else {
                return plan_err!(
                    "{arg} is no argument of the macro {name}, which has {} parameters",
                    self.parameters.len()
                );
            };
            if values.insert(parameter.name.clone(), value.clone()).is_some() {
                return plan_err!("the macro {name} gets {} twice", parameter.name);
            }
        }
        for parameter in &self.parameters {
            if !values.contains_key(&parameter.name) {
                let Some(default) = &parameter.default else {
                    return plan_err!("the macro {name} gets no {}", parameter.name);
                };
                values.insert(parameter.name.clone(), default.clone());
            }
        }
        Ok(values)
    }

    /// The expression that a call of it is.
    pub fn written_out(&self, name: &str, call: &Function, spent: &mut Spent) -> Result<Expr> {
        let MacroDefinition::Expr(body) = &self.definition else {
            return plan_err!("{name} is a macro of a table: it stands in FROM");
        };
        let mut body = body.clone();
        // Those of the arguments are none of the macro's.
        let has_aggregates = has_aggregates(&mut body);
        self.fill(&mut body, name, arguments(call)?, spent)?;
        with_clauses(body, has_aggregates, call)
    }

    fn fill(
        &self,
        body: &mut impl datafusion::sql::sqlparser::ast::VisitMut,
        name: &str,
        args: &[FunctionArg],
        spent: &mut Spent,
    ) -> Result<()> {
        let values = self.values(name, args)?;
        let mut sizes = HashMap::new();
        for (parameter, value) in &values {
            sizes.insert(parameter.clone(), Size::of(&mut value.clone()));
        }
        let mut own = Size::default();
        let _ = visit_part(body, &mut own);
        let deepest = sizes.values().map(|size| size.deepest).max().unwrap_or(0);
        spent.levels += own.deepest;
        if spent.levels.min(own.deepest + deepest) > MOST_LEVELS {
            return plan_err!(
                "what the macro {name} stands for is too deep: write a part of it as a query of its own"
            );
        }
        spent.add(own.parts, name)?;
        let mut fill = Fill { values: &values, sizes: &sizes, name, spent };
        ended(visit_part(body, &mut fill))
    }
}

/// The arguments of a call that is written with parentheses.
fn arguments(call: &Function) -> Result<&[FunctionArg]> {
    match &call.args {
        FunctionArguments::List(list) => Ok(&list.args),
        FunctionArguments::None => Ok(&[]),
        FunctionArguments::Subquery(_) => {
            plan_err!("{} takes no query without parentheses of its own", call.name)
        }
    }
}

/// What macros have added to a statement.
#[derive(Debug, Default)]
pub(super) struct Spent {
    parts: usize,
    /// Of all of them together, as if each stood within the last.
    levels: usize,
}

impl Spent {
    fn add(&mut self, parts: usize, name: &str) -> Result<()> {
        self.parts += parts;
        match self.parts > MOST_PARTS {
            true => plan_err!(
                "what the macro {name} stands for is too large: it is written out where it is called"
            ),
            false => Ok(()),
        }
    }
}

/// How many expressions something has, and how deep they are.
#[derive(Debug, Default, Clone, Copy)]
struct Size {
    parts: usize,
    level: usize,
    deepest: usize,
}

impl Size {
    fn of(expr: &mut Expr) -> Size {
        let mut size = Size::default();
        let _ = visit_part(expr, &mut size);
        size
    }
}

impl Walk for Size {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        // A query takes as much of the stack as several expressions.
        self.parts += 1;
        self.level += 4;
        self.deepest = self.deepest.max(self.level);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.level -= 4;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &mut Expr) -> Flow {
        self.parts += 1;
        self.level += 1;
        self.deepest = self.deepest.max(self.level);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> Flow {
        self.level -= 1;
        ControlFlow::Continue(())
    }
}

/// Puts values in the places of parameters. It goes from the inside out, so that it does not come into the values.
struct Fill<'a> {
    values: &'a HashMap<String, Expr>,
    sizes: &'a HashMap<String, Size>,
    name: &'a str,
    spent: &'a mut Spent,
}

impl Walk for Fill<'_> {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Expr::Identifier(name) = expr else { return ControlFlow::Continue(()) };
        let name = normal(name);
        let Some(value) = self.values.get(&name) else { return ControlFlow::Continue(()) };
        let parts = self.sizes.get(&name).map_or(1, |size| size.parts);
        if let Err(error) = self.spent.add(parts, self.name) {
            return ControlFlow::Break(Some(error));
        }
        *expr = match value {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Function(_) => {
                value.clone()
            }
            value => Expr::Nested(Box::new(value.clone())),
        };
        ControlFlow::Continue(())
    }
}

/// Writes out the calls of a session's own macros.
pub(super) struct Expand<'a> {
    pub macros: &'a Macros,
    pub spent: &'a mut Spent,
    /// Those that are written out right now.
    active: Vec<String>,
}

impl<'a> Expand<'a> {
    /// Nothing where the session has none.
    pub fn of(macros: &'a Macros, spent: &'a mut Spent) -> Option<Expand<'a>> {
        (!macros.is_empty()).then(|| Expand { macros, spent, active: Vec::new() })
    }

    fn begin(&mut self, name: &str, args: &[FunctionArg], is_table: bool) -> Result<Option<Arc<Macro>>> {
        let Some(found) = self.macros.find(name, args, is_table)? else { return Ok(None) };
        if self.active.iter().any(|active| active == name) {
            return plan_err!("the macro {name} calls itself");
        }
        Ok(Some(found))
    }

    fn expr(&mut self, call: &Function) -> Result<Option<Expr>> {
        let Some(name) = name_of(call) else { return Ok(None) };
        let args = match &call.args {
            FunctionArguments::List(list) => list.args.as_slice(),
            _ => &[],
        };
        let Some(found) = self.begin(&name, args, false)? else { return Ok(None) };
        // Its own macros are written out before the arguments, whose macros have been already, come into it.
        let mut inner = found.as_ref().clone();
        if let MacroDefinition::Expr(body) = &mut inner.definition {
            self.within(&name, body)?;
        }
        inner.written_out(&name, call, self.spent).map(Some)
    }

    fn within(
        &mut self,
        name: &str,
        body: &mut impl datafusion::sql::sqlparser::ast::VisitMut,
    ) -> Result<()> {
        self.active.push(name.to_string());
        let done = visit_part(body, self);
        self.active.pop();
        ended(done)
    }

    fn table(&mut self, factor: &mut TableFactor) -> Result<()> {
        let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return Ok(()) };
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return Ok(()) };
        let name = normal(ident);
        let Some(found) = self.begin(&name, &args.args, true)? else { return Ok(()) };
        let MacroDefinition::Table(query) = &found.definition else {
            return plan_err!("{name} is a macro of an expression, and no table");
        };
        let mut query = query.clone();
        self.within(&name, &mut query)?;
        found.fill(&mut query, &name, &args.args, self.spent)?;
        let named = as_alias(quoted(name));
        let alias = Some(alias.take().unwrap_or(named));
        *factor = TableFactor::Derived { lateral: false, subquery: query, alias, sample: None };
        Ok(())
    }
}

impl Walk for Expand<'_> {
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        flow(self.table(factor))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        match self.expr(call) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(written)) => {
                *expr = written;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Some(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_functions_of_the_file_are_known() {
        let mut count = 0;
        for (name, known) in
            super::KNOWN.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one)))
        {
            let made = super::known(name, known.parameters).map(|made| made.parameters.len());
            assert_eq!(made, Some(known.parameters), "{}", known.text);
            count += 1;
        }
        assert_eq!(count, include_str!("functions.sql").matches("CREATE MACRO").count());
    }
}
