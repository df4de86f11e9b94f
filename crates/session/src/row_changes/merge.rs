//! MERGE INTO: each row of the source has partners in the table, or has none, and the first clause whose condition holds says what is done.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::{concat, concat_batches};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, ExcludeSelectItem, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, ObjectName, ObjectNamePart, OutputClause, Query, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, WildcardAdditionalOptions, With,
};

use super::assignments::{Assignments, is_default};
use super::queries::{self, Relation, SOURCE, all, alone, exists, query, rows, rows_of};
use super::returning::Returning;
use super::target::{Target, Within, alias_of};
use super::{Changes, numbers_of};
use crate::dialect::merges::{BY_NAME, EQUAL_COLUMNS, NOTHING};
use crate::syntax::{name_of, plain_query, quoted, select_all};

/// The column of RETURNING that says what was done.
const ACTION: &str = "merge_action";

/// A MERGE whose parts are known.
struct Merged<'a> {
    target: &'a Target,
    source: TableAlias,
    /// The columns of the source.
    columns: Vec<String>,
    on: Expr,
    with: Option<&'a With>,
    relations: [Relation; 2],
}

pub(super) async fn merge(
    merge: &Merge,
    target: Target,
    (with, within): (Option<&With>, &Within<'_>),
) -> Result<RecordBatch> {
    let source = source_of(&merge.source)?;
    let found = select_all(vec![alone(merge.source.clone())]);
    let found = Query { with: with.cloned(), ..plain_query(SetExpr::Select(Box::new(found))) };
    let plan = within.queries.plan(queries::statement(found), &[]).await?;
    let found = queries::all_of(within.queries, &plan).await?;
    let columns: Vec<String> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
    let on = match merge.on.as_ref() {
        Expr::Function(call) if name_of(call).as_deref() == Some(EQUAL_COLUMNS) => {
            equal_columns(&call.args, &target.alias, &source)?
        }
        on => on.clone(),
    };
    let items = match &merge.output {
        Some(OutputClause::Returning { select_items, .. }) => Some(select_items.clone()),
        Some(OutputClause::Output { .. }) => return plan_err!("OUTPUT of MERGE is not supported: RETURNING"),
        None => None,
    };
    let relations = [target.relation()?, Relation::of(SOURCE, found)?];
    let merged = Merged { target: &target, source, columns, on, with, relations };
    merged.carry_out(&merge.clauses, items.as_deref(), within).await
}

/// Merges rows that are known into a table.
pub(super) async fn merge_rows(
    merge: &Merge,
    target: &Target,
    (source, rows): (TableAlias, RecordBatch),
    items: Option<&[SelectItem]>,
    within: &Within<'_>,
) -> Result<RecordBatch> {
    let columns = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let relations = [target.relation()?, Relation::of(SOURCE, rows)?];
    let on = merge.on.as_ref().clone();
    let merged = Merged { target, source, columns, on, with: None, relations };
    merged.carry_out(&merge.clauses, items, within).await
}

/// Which rows a clause is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Pairs of the table's rows and the source's.
    Matched,
    /// Rows of the source.
    OnlySource,
    /// Rows of the table.
    OnlyTable,
}

fn kind_of(clause: &MergeClause) -> Kind {
    match clause.clause_kind {
        MergeClauseKind::Matched => Kind::Matched,
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => Kind::OnlySource,
        MergeClauseKind::NotMatchedBySource => Kind::OnlyTable,
    }
}

impl Merged<'_> {
    /// Does what the clauses say.
    async fn carry_out(
        &self,
        clauses: &[MergeClause],
        items: Option<&[SelectItem]>,
        within: &Within<'_>,
    ) -> Result<RecordBatch> {
        let target = self.target;
        let (mut changes, mut inserted) = (Changes::of(target), Vec::new());
        for (place, clause) in clauses.iter().enumerate() {
            let kind = kind_of(clause);
            let before = clauses[..place].iter().filter(|before| kind_of(before) == kind);
            let before: Option<Vec<Expr>> = before.map(|before| before.predicate.clone()).collect();
            // Behind a clause without a condition, none of its kind is reached.
            let Some(before) = before else { continue };
            let unmet = before
                .into_iter()
                .map(|condition| Expr::IsNotTrue(Box::new(Expr::Nested(Box::new(condition)))));
            let conditions: Vec<Expr> = unmet.chain(clause.predicate.clone()).collect();
            self.clause(clause, conditions, (&mut changes, &mut inserted), within).await?;
        }
        let updated = changes.updated()?;
        let items = items.map(|items| items.iter().map(without_action).collect::<Vec<_>>());
        let new = concat_batches(&target.unchecked_schema(), &inserted)?;
        let changed = changes.marked(&updated)?;
        let all_new = concat_batches(&target.unchecked_schema(), [&changed, &new])?;
        let turn = target.check(&all_new, &changes.untouched()?, within).await?;
        let changed =
            with_actions([("UPDATE", changed), ("DELETE", changes.removed()?), ("INSERT", new.clone())])?;
        let answer = Returning::of(items.as_deref(), &target.alias, changed).answer(within.queries).await?;
        let kept = changes.kept(&updated)?;
        let pairs = kept.iter().zip(new.columns());
        let columns =
            pairs.map(|(kept, new)| concat(&[kept.as_ref(), new.as_ref()])).collect::<Result<Vec<_>, _>>()?;
        target.replace(columns, within).await?;
        drop(turn);
        Ok(answer)
    }

    async fn clause(
        &self,
        clause: &MergeClause,
        conditions: Vec<Expr>,
        (changes, inserted): (&mut Changes<'_>, &mut Vec<RecordBatch>),
        within: &Within<'_>,
    ) -> Result<()> {
        let kind = kind_of(clause);
        let source = rows_of(SOURCE, self.source.clone());
        let on = || self.on.clone();
        let (from, joined) = match kind {
            Kind::Matched => (vec![alone(self.target.factor()), alone(source)], on()),
            Kind::OnlySource => (vec![alone(source)], exists(self.target.factor(), on(), true)),
            Kind::OnlyTable => (vec![alone(self.target.factor())], exists(source, on(), true)),
        };
        let condition = all([joined].into_iter().chain(conditions));
        match (&clause.action, kind) {
            (MergeAction::Update(update), _) if is_marked(update.assignments.first(), NOTHING) => {
                // Such rows are none of later clauses, which ask for that.
            }
            (MergeAction::Insert(insert), Kind::OnlySource)
                if insert.columns.first().is_some_and(|name| is_named(name, NOTHING)) => {}
            (MergeAction::Insert(insert), Kind::OnlySource) => {
                if insert.insert_predicate.is_some() {
                    return plan_err!(
                        "WHERE of INSERT in MERGE is not supported: WHEN NOT MATCHED AND … THEN INSERT"
                    );
                }
                let values = self.inserted(insert)?;
                let schema = self.target.unchecked_schema();
                let query = query(values, from, condition, self.with);
                let found = rows(within.queries, (query, &self.relations), (0, schema.fields())).await?;
                inserted.push(RecordBatch::try_new(schema, found.columns().to_vec())?);
            }
            (MergeAction::Insert(_), _) => {
                return plan_err!("INSERT of MERGE stands behind WHEN NOT MATCHED");
            }
            (_, Kind::OnlySource) => {
                return plan_err!("WHEN NOT MATCHED has INSERT or DO NOTHING: there is no row to change");
            }
            (MergeAction::Update(update), _) => {
                if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                    return plan_err!(
                        "WHERE of UPDATE in MERGE is not supported: WHEN MATCHED AND … THEN UPDATE"
                    );
                }
                let assignments = match is_marked(update.assignments.first(), BY_NAME) {
                    true => self.all_by_name()?,
                    false => Assignments::of(&update.assignments, self.target)?,
                };
                let columns = [self.target.number()].into_iter().chain(assignments.values.clone()).collect();
                let fields = assignments.fields(self.target);
                let query = query(columns, from, condition, self.with);
                let found = rows(within.queries, (query, &self.relations), (1, &fields)).await?;
                changed_once(&found, changes)?;
                changes.update(&assignments.places, &found)?;
            }
            (MergeAction::Delete { .. }, _) => {
                let query = query(vec![self.target.number()], from, condition, self.with);
                let found = rows(within.queries, (query, &self.relations), (1, &[])).await?;
                changed_once(&found, changes)?;
                changes.delete(&found)?;
            }
        }
        Ok(())
    }

    fn of_source(&self, column: &str) -> Expr {
        Expr::CompoundIdentifier(vec![self.source.name.clone(), quoted(column)])
    }

    /// The table's columns that the source has as well.
    fn all_by_name(&self) -> Result<Assignments> {
        let mut assignments = Assignments { places: vec![], values: vec![] };
        for column in &self.columns {
            let name = ObjectName(vec![ObjectNamePart::Identifier(quoted(column))]);
            assignments.places.push(self.target.place(&name)?);
            assignments.values.push(self.of_source(column));
        }
        Ok(assignments)
    }

    /// A value for each column of the table.
    fn inserted(&self, insert: &MergeInsertExpr) -> Result<Vec<Expr>> {
        let is_by_name = matches!(insert.columns.as_slice(), [name] if is_named(name, BY_NAME));
        let count = self.target.schema().fields().len();
        let (places, values) = match &insert.kind {
            MergeInsertKind::Row => {
                ((0..count).collect(), self.columns.iter().map(|column| self.of_source(column)).collect())
            }
            MergeInsertKind::Values(values) => {
                let [row] = values.rows.as_slice() else {
                    return plan_err!("INSERT of MERGE has one row of values");
                };
                // The parser was given a value, as it wants one.
                if is_by_name {
                    let assignments = self.all_by_name()?;
                    (assignments.places, assignments.values)
                } else {
                    let places: Vec<usize> = match insert.columns.is_empty() {
                        true => (0..count).collect(),
                        false => insert
                            .columns
                            .iter()
                            .map(|name| self.target.place(name))
                            .collect::<Result<_>>()?,
                    };
                    (places, row.content.clone())
                }
            }
        };
        if places.len() != values.len() {
            return plan_err!("INSERT of MERGE has {} columns and {} values", places.len(), values.len());
        }
        let mut all = Vec::with_capacity(count);
        for place in 0..count {
            let given = places.iter().position(|given| *given == place).map(|given| &values[given]);
            all.push(match given.filter(|value| !is_default(value)) {
                Some(value) => value.clone(),
                None => self.target.default_of(place)?,
            });
        }
        Ok(all)
    }
}

/// A row that is changed twice would have one of both changes by chance.
fn changed_once(found: &RecordBatch, changes: &Changes<'_>) -> Result<()> {
    let mut numbers = numbers_of(found)?;
    let is_changed = numbers.iter().any(|number| changes.is_changed(*number));
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    match is_changed || numbers.len() != count {
        true => exec_err!("MERGE would change a row twice: several rows of the source are its partners"),
        false => Ok(()),
    }
}

/// What the statement calls its source.
fn source_of(source: &TableFactor) -> Result<TableAlias> {
    let (alias, name) = match source {
        TableFactor::Table { name, alias, .. } => (alias, name.0.last().and_then(ObjectNamePart::as_ident)),
        TableFactor::Derived { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
        | TableFactor::UNNEST { alias, .. } => (alias, None),
        _ => return plan_err!("the source of MERGE is a table or a query"),
    };
    match (alias, name) {
        (Some(alias), _) => Ok(alias_of(alias.name.clone())),
        (None, Some(name)) => Ok(alias_of(name.clone())),
        (None, None) => Ok(alias_of(Ident::new(SOURCE))),
    }
}

fn equal_columns(arguments: &FunctionArguments, target: &TableAlias, source: &TableAlias) -> Result<Expr> {
    let names: Option<Vec<Ident>> = match arguments {
        FunctionArguments::List(list) => {
            let name = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name))) => Some(name.clone()),
                _ => None,
            };
            list.args.iter().map(name).collect()
        }
        _ => None,
    };
    let equal = |name: Ident| {
        let of =
            |table: &TableAlias| Box::new(Expr::CompoundIdentifier(vec![table.name.clone(), name.clone()]));
        Expr::BinaryOp { left: of(target), op: BinaryOperator::Eq, right: of(source) }
    };
    match names.and_then(|names| all(names.into_iter().map(equal))) {
        Some(condition) => Ok(condition),
        None => plan_err!("USING of MERGE takes names of columns"),
    }
}

fn is_named(name: &ObjectName, wanted: &str) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(name)] if name.value == wanted)
}

fn is_marked(assignment: Option<&Assignment>, mark: &str) -> bool {
    matches!(assignment.map(|first| &first.target), Some(AssignmentTarget::ColumnName(name)) if is_named(name, mark))
}

/// Rows with what was done to them.
fn with_actions(parts: [(&str, RecordBatch); 3]) -> Result<RecordBatch> {
    let mut all = Vec::new();
    for (action, rows) in parts {
        let actions = StringArray::from(vec![action; rows.num_rows()]);
        let field = Arc::new(Field::new(ACTION, DataType::Utf8, false));
        let schema = Schema::new(rows.schema().fields().iter().cloned().chain([field]).collect::<Vec<_>>());
        let columns = rows.columns().iter().cloned().chain([Arc::new(actions) as ArrayRef]).collect();
        all.push(RecordBatch::try_new(Arc::new(schema), columns)?);
    }
    Ok(concat_batches(&all[0].schema(), &all)?)
}

/// An item of RETURNING; a star means the table's columns.
fn without_action(item: &SelectItem) -> SelectItem {
    let action = ObjectName(vec![ObjectNamePart::Identifier(quoted(ACTION))]);
    let options = || WildcardAdditionalOptions {
        opt_exclude: Some(ExcludeSelectItem::Multiple(vec![action])),
        ..WildcardAdditionalOptions::default()
    };
    match item {
        SelectItem::Wildcard(own) if own.opt_exclude.is_none() => SelectItem::Wildcard(options()),
        SelectItem::QualifiedWildcard(name @ SelectItemQualifiedWildcardKind::ObjectName(_), own)
            if own.opt_exclude.is_none() =>
        {
            SelectItem::QualifiedWildcard(name.clone(), options())
        }
        item => item.clone(),
    }
}
