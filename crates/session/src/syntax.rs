//! Walks over a statement's syntax tree, and parts of one.

use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query,
    Select, SelectFlavor, SelectItem, SetExpr, Statement as SqlStatement, TableAlias, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

/// Whether a walk goes on; where it does not, for an error or because all is found.
pub(crate) type Flow = ControlFlow<Option<DataFusionError>>;

/// What a walk came to.
pub(crate) fn ended(flow: Flow) -> Result<()> {
    match flow {
        ControlFlow::Break(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

/// A walk goes on where something is done.
pub(crate) fn flow(done: Result<()>) -> Flow {
    done.map_or_else(|error| ControlFlow::Break(Some(error)), ControlFlow::Continue)
}

/// What is seen on a walk, each part before what is within it, or after.
///
/// `VisitorMut` is not for trait objects, and the compiler makes a walk over the whole syntax anew for each of its implementations,
/// which takes a megabyte and seconds. This has one.
pub(crate) trait Walk {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, _: &mut Select) -> Flow {
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, _: &mut TableFactor) -> Flow {
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &mut Expr) -> Flow {
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> Flow {
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, _: &mut SqlStatement) -> Flow {
        ControlFlow::Continue(())
    }
}

struct Walker<'a>(&'a mut dyn Walk);

impl VisitorMut for Walker<'_> {
    type Break = Option<DataFusionError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.0.pre_visit_query(query)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        self.0.post_visit_query(query)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        self.0.pre_visit_select(select)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        self.0.pre_visit_table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        self.0.pre_visit_expr(expr)
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        self.0.post_visit_expr(expr)
    }

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> Flow {
        self.0.pre_visit_statement(statement)
    }
}

/// The statement that is a query.
pub(crate) fn statement_of(query: Query) -> Statement {
    Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))))
}

/// An alias of a relation.
pub(crate) fn as_alias(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: vec![], at: None }
}

/// Walks over the parts of a statement that name columns.
pub(crate) fn visit(statement: &mut Statement, walk: &mut dyn Walk) -> Flow {
    match statement {
        Statement::Statement(statement) => statement.as_mut().visit(&mut Walker(walk)),
        Statement::Explain(explain) => visit(&mut explain.statement, walk),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut Walker(walk)),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

/// Walks over a part of a statement.
pub(crate) fn visit_part(part: &mut impl VisitMut, walk: &mut dyn Walk) -> Flow {
    part.visit(&mut Walker(walk))
}

/// Looks at the expressions of a part, after what is within them; queries within it, with all of theirs, are left out.
pub(crate) fn visit_own(part: &mut impl VisitMut, see: &mut dyn FnMut(&mut Expr) -> Flow) -> Flow {
    visit_part(part, &mut Own { see, queries: 0 })
}

/// See [`visit_own`].
struct Own<'a> {
    see: &'a mut dyn FnMut(&mut Expr) -> Flow,
    /// Queries around what is walked over.
    queries: usize,
}

impl Walk for Own<'_> {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if self.queries == 0 { (self.see)(expr) } else { ControlFlow::Continue(()) }
    }
}

/// Changes the expressions of a part, each before what is within it.
pub(crate) fn change_exprs(part: &mut impl VisitMut, change: &mut dyn FnMut(&mut Expr)) {
    let _ = visit_part(part, &mut FromOutside(change));
}

/// See [`change_exprs`].
struct FromOutside<'a>(&'a mut dyn FnMut(&mut Expr));

impl Walk for FromOutside<'_> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        (self.0)(expr);
        ControlFlow::Continue(())
    }
}

/// Changes the expressions of a part, each after what is within it.
pub(crate) fn change_exprs_from_inside(part: &mut impl VisitMut, change: &mut dyn FnMut(&mut Expr)) {
    let _ = visit_part(part, &mut FromInside(change));
}

/// See [`change_exprs_from_inside`].
struct FromInside<'a>(&'a mut dyn FnMut(&mut Expr));

impl Walk for FromInside<'_> {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        (self.0)(expr);
        ControlFlow::Continue(())
    }
}

/// Whether a part has such an expression within it, or is one.
pub(crate) fn has_expr(part: &mut impl VisitMut, is_such: &dyn Fn(&Expr) -> bool) -> bool {
    visit_part(part, &mut Search(is_such)).is_break()
}

/// See [`has_expr`].
struct Search<'a>(&'a dyn Fn(&Expr) -> bool);

impl Walk for Search<'_> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if (self.0)(expr) { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
    }
}

/// Whether an expression, or a query within it, names a column.
pub(crate) fn names_columns(expr: &Expr) -> bool {
    has_expr(&mut expr.clone(), &|expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)))
}

/// Whether an expression has a query within it.
pub(crate) fn has_query(expr: &mut Expr) -> bool {
    visit_part(expr, &mut Queries).is_break()
}

/// Stops at the first query.
struct Queries;

impl Walk for Queries {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        ControlFlow::Break(None)
    }
}

/// A name as SQL takes it: in lower case without quotes, else as it stands.
pub(crate) fn normal(ident: &Ident) -> String {
    match ident.quote_style {
        None => ident.value.to_ascii_lowercase(),
        Some(_) => ident.value.clone(),
    }
}

/// The table that a name of up to three parts means.
pub(crate) fn reference_of(table: &ObjectName) -> Option<TableReference> {
    let parts: Option<Vec<String>> =
        table.0.iter().map(|part| ObjectNamePart::as_ident(part).map(normal)).collect();
    match parts?.as_slice() {
        [table] => Some(TableReference::bare(table.as_str())),
        [schema, table] => Some(TableReference::partial(schema.as_str(), table.as_str())),
        [catalog, schema, table] => {
            Some(TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()))
        }
        _ => None,
    }
}

/// A name that means itself, whatever its case.
pub(crate) fn quoted(name: impl Into<String>) -> Ident {
    Ident::with_quote('"', name)
}

/// A query that is its body.
pub(crate) fn plain_query(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }
}

/// A table of FROM by its name alone.
pub(crate) fn table_named(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

/// The first SELECT of a query's body that has something, behind some others that have it too.
pub(crate) fn first_select<'a>(
    body: &'a mut SetExpr,
    passed: &mut usize,
    has_it: &dyn Fn(&Select) -> bool,
) -> Option<&'a mut Select> {
    match body {
        SetExpr::Select(select) if has_it(select) => match passed.checked_sub(1) {
            None => Some(select),
            Some(left) => {
                *passed = left;
                None
            }
        },
        SetExpr::SetOperation { left, right, .. } => match first_select(left, passed, has_it) {
            Some(select) => Some(select),
            None => first_select(right, passed, has_it),
        },
        _ => None,
    }
}

/// `SELECT * FROM …`, as a query.
pub(crate) fn select_from(from: Vec<TableWithJoins>) -> Query {
    plain_query(SetExpr::Select(Box::new(select_all(from))))
}

/// `SELECT * FROM …`.
pub(crate) fn select_all(from: Vec<TableWithJoins>) -> Select {
    Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from,
        lateral_views: vec![],
        prewhere: None,
        selection: None,
        connect_by: vec![],
        group_by: GroupByExpr::Expressions(vec![], vec![]),
        cluster_by: vec![],
        distribute_by: vec![],
        sort_by: vec![],
        having: None,
        named_window: vec![],
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    }
}

/// A call of a function.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    let args = FunctionArgumentList { duplicate_treatment: None, args: args.collect(), clauses: vec![] };
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(args),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// What is called, where it is a plain name.
pub(crate) fn name_of(call: &Function) -> Option<String> {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(normal(name)),
        _ => None,
    }
}

/// A text that is written out.
pub(crate) fn literal(text: impl Into<String>) -> Expr {
    Expr::value(Value::SingleQuotedString(text.into()))
}

/// A number that is written out.
pub(crate) fn number(digits: impl ToString) -> Expr {
    Expr::value(Value::Number(digits.to_string(), false))
}

/// An expression as a value of a type.
pub(crate) fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// A name without those of what it is in.
pub(crate) fn last_name(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(ObjectNamePart::as_ident)
}

/// An expression that leaves NULL in its place.
pub(crate) fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::value(Value::Null))
}

/// The condition of a join.
pub(crate) fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => Some(constraint),
        _ => None,
    }
}
