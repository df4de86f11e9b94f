//! Keys of groups that are computed of columns with few values (`date_trunc('month', day)`, `upper(segment)`): rows are brought to
//! groups by the columns, and these groups to those by the keys. So a key is computed once a value, and rows find their groups at
//! places, where by the key they might be hashed.

use std::borrow::Cow;

use super::delivery::{Grouped, Wanted};
use super::{Cut, OpenRows};
use crate::MicroModel;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, children, substitute};
use crate::layout::ColumnInfo;
use crate::lower::{columns_of, is_cheap};
use crate::operator::aggregate::{key_values, why_not_rollup};
use crate::plan::{Aggregate, Plan};
use crate::types::DataType;
use crate::variant::axes::{ComputedKeys, UniqueRows};

/// Values of all columns together, at most: their groups lie near, and are few beside the rows. A CPU's worker takes longer to compute a key
/// (of the month of a day 20 ns) than to come to a group in its caches.
const MOST_VALUES: u64 = 1 << 16;
const MOST_VALUES_OF_WORKER: u64 = 1 << 18;
/// Rows for each of them, at least.
const ROWS_A_VALUE: u64 = 16;

impl Cut<'_> {
    /// Brings rows to their groups, by way of the values of columns that keys are computed of where that is chosen.
    pub(super) fn aggregate_values(
        &mut self,
        (input, keys): (&Plan, &[Expr]),
        aggregates: &[Aggregate],
    ) -> Result<OpenRows, Unsupported> {
        let Some((input, computed)) = with_columns(input, keys) else {
            let mut rows = self.open(input)?;
            self.begin_groups();
            if aggregates.is_empty() && self.are_distinct(&rows, keys)? {
                rows.project(keys.to_vec());
                return Ok(rows);
            }
            return Ok(self.aggregate(rows, keys, (aggregates, Wanted::Rows))?.rows());
        };
        let rows = self.open(&input)?;
        self.begin_groups();
        let Some(columns) = self.few_values(&rows, &computed, aggregates)? else {
            return Ok(self.aggregate(rows, keys, (aggregates, Wanted::Rows))?.rows());
        };
        let finer = self.aggregate(rows, &columns, (aggregates, Wanted::Table))?.table()?;
        let among = |expr: &Expr| {
            let place = columns.iter().position(|column| column.kind == expr.kind)?;
            Some(Expr::column(place, expr.data_type.clone(), expr.nullable))
        };
        let keys: Vec<Expr> = computed.iter().map(|key| substitute(key, &among)).collect();
        self.groups = self.groups.of_groups();
        Ok(Grouped::from(self.aggregate_groups(&finer, &keys)?).rows())
    }

    /// Whether each row is a group of its own, so that those that DISTINCT leaves are the rows as they come.
    fn are_distinct(&self, rows: &OpenRows, keys: &[Expr]) -> Result<bool, Unsupported> {
        if !rows.properties.are_unique(keys) {
            return Ok(false);
        }
        let rule = (UniqueRows::Pass, "no two rows have the same keys");
        let chosen = self.chooser.choose(&self.groups.to_string(), rule, |_| Ok(()))?;
        Ok(chosen == UniqueRows::Pass)
    }

    /// The columns that keys are computed of, where groups by their values come first.
    fn few_values(
        &self,
        rows: &OpenRows,
        keys: &[Expr],
        aggregates: &[Aggregate],
    ) -> Result<Option<Vec<Expr>>, Unsupported> {
        let mut columns: Vec<Expr> = Vec::new();
        keys.iter().for_each(|key| add_columns(key, &mut columns));
        let infos = columns_of(&columns, &rows.columns);
        let most =
            infos.iter().map(key_values).try_fold(1_u64, |all, values| all.checked_mul(values?.max(1)));
        let limit = if self.shape.is_serial() { MOST_VALUES_OF_WORKER } else { MOST_VALUES };
        let are_few =
            most.is_some_and(|most| most <= limit && most.saturating_mul(ROWS_A_VALUE) <= rows.expected());
        let range_of = |index: usize| rows.columns.get(index).and_then(|info: &ColumnInfo| info.range);
        let is_costly =
            |key: &Expr| !is_column(key) && (key.data_type == DataType::Utf8 || !is_cheap(key, &range_of));
        // To find the group of such a text it is hashed and compared, which takes longer than most keys do.
        let has_stored_texts =
            || infos.iter().any(|info| info.data_type == DataType::Utf8 && info.dictionary.is_none());
        // One group has rows with 0.0 and with -0.0, of which a key may be computed to different values.
        let reads_floats = |key: &Expr| {
            let mut own = Vec::new();
            add_columns(key, &mut own);
            !is_column(key) && own.iter().any(|column| column.data_type.is_float())
        };
        let lacks = match why_not_rollup(aggregates) {
            None if columns.is_empty() => Some("keys are computed of no column".to_string()),
            None if keys.iter().any(reads_floats) => Some("keys are computed of floats".to_string()),
            lacks => lacks,
        };
        let rule = match &lacks {
            Some(lacks) => (ComputedKeys::Rows, lacks.as_str()),
            None if self.choices.micro_model != MicroModel::Resolution => {
                (ComputedKeys::Rows, "the micro model brings rows to their groups")
            }
            None if !keys.iter().any(is_costly) => (ComputedKeys::Rows, "keys cost little"),
            None if has_stored_texts() => (
                ComputedKeys::Rows,
                "texts that are in no dictionary are not brought to groups at little cost",
            ),
            None if are_few => {
                (ComputedKeys::Values, "columns with few values, which cost much to compute with")
            }
            None => (ComputedKeys::Rows, "columns are not known to have few values"),
        };
        let site = self.groups.to_string();
        let chosen = self.chooser.choose(&site, rule, |value| match (value, &lacks) {
            (ComputedKeys::Values, Some(lacks)) => Err(lacks.clone()),
            _ => Ok(()),
        })?;
        Ok((chosen == ComputedKeys::Values).then_some(columns))
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Column(_))
}

/// Adds the columns that an expression reads, each once.
fn add_columns(expr: &Expr, columns: &mut Vec<Expr>) {
    if is_column(expr) && columns.iter().all(|known| known.kind != expr.kind) {
        columns.push(expr.clone());
    }
    children(expr).into_iter().for_each(|child| add_columns(child, columns));
}

/// The keys as they are computed of the input's columns, and the input with the columns that this takes: a projection below may compute
/// them, and not pass those on. `None` where no key is computed.
fn with_columns<'a>(input: &'a Plan, keys: &[Expr]) -> Option<(Cow<'a, Plan>, Vec<Expr>)> {
    let below = |key: &Expr| match key.kind {
        ExprKind::Column(column) => input
            .computed(column)
            .filter(|expr| !matches!(expr.kind, ExprKind::Column(_) | ExprKind::Literal(_))),
        _ => None,
    };
    if !keys.iter().any(|key| !is_column(key) || below(key).is_some()) {
        return None;
    }
    let (mut input, mut computed) = (Cow::Borrowed(input), Vec::new());
    for key in keys {
        let Some(expr) = below(key) else {
            computed.push(key.clone());
            continue;
        };
        let mut columns = Vec::new();
        add_columns(expr, &mut columns);
        let places: Option<Vec<usize>> =
            columns.iter().map(|column| input.to_mut().pass_on(column)).collect();
        let places = places?;
        let passed = |expr: &Expr| {
            let place = columns.iter().position(|column| column.kind == expr.kind)?;
            Some(Expr::column(*places.get(place)?, expr.data_type.clone(), expr.nullable))
        };
        computed.push(substitute(expr, &passed));
    }
    Some((input, computed))
}
