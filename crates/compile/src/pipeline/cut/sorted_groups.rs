//! Groups of sorted rows (HorseQC, Table 4, C1): the rows are sorted by all keys, and the runs of equal keys are reduced, whatever
//! their lengths are. No table is filled, and groups come in the order of their keys.

use std::sync::Arc;

use super::delivery::Wanted;
use super::properties::RowProperties;
use super::strides::Stored;
use super::{Cut, Open, OpenRows};
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::operator::aggregate::counts_once;
use crate::operator::roles::Source;
use crate::operator::sort::SortOperator;
use crate::operator::sort::words::Words;
use crate::operator::window::{RunRows, StoredWindow, WindowOperator};
use crate::plan::{Frame, SortKey, WindowCall, WindowFunction};
use crate::program::Purpose;
use crate::variant::all_but;
use crate::variant::axes::SortedGroups;

impl Cut<'_> {
    /// How sorted rows become groups.
    pub(super) fn sorted_groups(
        &self,
        stored: &Stored<'_>,
        wanted: Wanted,
    ) -> Result<SortedGroups, Unsupported> {
        let keys = stored.infos.get(..stored.keys).unwrap_or_default();
        let why_not = match () {
            () if wanted == Wanted::Table => Some("coarser groups are made of a table"),
            () if stored.aggregates.iter().any(counts_once) => {
                Some("equal values that count once are found in a set beside a table")
            }
            () if keys.iter().any(|key| key.data_type.is_float()) => {
                Some("the two zeros of a float are one key, of which a group shows one")
            }
            () if Words::plan_groups(stored.keys, &[], stored.infos).is_err() => {
                Some("the keys have no order")
            }
            () => None,
        };
        let rule = match why_not {
            None => (SortedGroups::Runs, "runs of equal keys are reduced as they lie"),
            Some(why_not) => (SortedGroups::Table, why_not),
        };
        let site = self.groups.to_string();
        self.chooser.choose(&site, rule, all_but(SortedGroups::Runs, &why_not))
    }

    /// Sorts rows by their keys and reduces runs of equal ones.
    pub(super) fn reduced(&mut self, rows: OpenRows, stored: &Stored<'_>) -> Result<OpenRows, Unsupported> {
        let keys: Vec<SortKey> = stored.exprs.iter().take(stored.keys).enumerate().map(key).collect();
        let functions: Vec<WindowFunction> = stored
            .aggregates
            .iter()
            .map(|own| WindowFunction {
                call: WindowCall::Aggregate { function: own.function, argument: own.argument.clone() },
                partition: keys.len(),
                order: keys.len(),
                frame: Frame::PARTITION,
                field: own.field.clone(),
            })
            .collect();
        let (bound, size) = (rows.bound(), self.sort_size(&rows));
        let words = Words::plan_groups(keys.len(), &[], stored.infos)?;
        let form = self.sort_form(&self.groups.to_string())?;
        let states = self.states.of(Purpose::Store);
        let sort = SortOperator::plan_ranked(words, false, stored.infos, size, states)?;
        let sort = Arc::new(sort.with_form(form));
        let window = StoredWindow {
            sort: Arc::clone(&sort),
            width: stored.infos.len(),
            bound,
            keys: &keys,
            functions: &functions,
            are_groups: true,
        };
        let operator = Arc::new(WindowOperator::plan(&window, states)?);
        let dependences = rows.properties.dependences.projected(stored.exprs);
        self.window_passes(rows, stored.exprs, (&sort, &operator), bound);
        let source = RunRows(operator);
        let (columns, count) = (source.columns(), source.count()?);
        let unique = vec![(0..keys.len()).collect()];
        let properties = RowProperties { unique, order: keys, ..RowProperties::new(dependences) };
        let open = Open { in_order: Some(count), ..Open::new(source, bound) };
        Ok(OpenRows { properties, ..OpenRows::new(vec![open], columns) })
    }
}

/// A key by the column in which it is stored.
fn key((place, expr): (usize, &Expr)) -> SortKey {
    let expr =
        Expr { kind: ExprKind::Column(place), data_type: expr.data_type.clone(), nullable: expr.nullable };
    SortKey { expr, descending: false, nulls_first: false }
}
