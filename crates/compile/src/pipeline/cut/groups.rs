//! Aggregations: their input as the micro model wants it, and the kernels after them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::delivery::{Grouped, Wanted};
use super::properties::RowProperties;
use super::strides::Stored;
use super::{Cut, Open, OpenRows, computes};
use crate::MicroModel;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, children, is_pair, with_children};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::aggregate::{
    AddToGroups, AggregateOperator, Contents, GroupCells, Groups, Input, KnownKeys, ReduceSums, TableChoices,
    TableSize, are_stored_beside, fits_in_slices, rule_of_parts, scattered_table, why_not_strided,
};
use crate::operator::partition::{IntoParts, PartRows, PartSize, PartStore};
use crate::operator::project::Project;
use crate::operator::roles::Source;
use crate::operator::sort::{SortOperator, SortRows, SortedRows};
use crate::plan::Aggregate;
use crate::program::{Purpose, States};
use crate::variant::Site;
use crate::variant::axes::{GroupOrder, GroupParts, SortedGroups};

impl Cut<'_> {
    /// Brings rows to their groups in the order, or in the parts, that are chosen.
    pub(super) fn aggregate_in_order(
        &mut self,
        rows: OpenRows,
        keys: &[Expr],
        (aggregates, wanted): (&[Aggregate], Wanted),
    ) -> Result<Grouped, Unsupported> {
        let (exprs, own_keys, own_aggregates) = over_columns(keys, aggregates);
        let infos = columns_of(&exprs, &rows.columns);
        let order = match keys {
            [] => GroupOrder::Arrival,
            _ => self.group_order(keys.len(), (&infos, &own_aggregates), &rows)?,
        };
        let stored = Stored { exprs: &exprs, infos: &infos, keys: keys.len(), aggregates: &own_aggregates };
        if order == GroupOrder::Strided {
            return Ok(self.strided(rows, &stored)?.into());
        }
        if order == GroupOrder::Sorted {
            if self.sorted_groups(&stored, wanted)? == SortedGroups::Runs {
                return self.reduced(rows, &stored).map(Grouped::Rows);
            }
            let size = self.sort_size(&rows);
            let form = self.sort_form(&self.groups.to_string())?;
            let states = self.states.of(Purpose::Store);
            let sort = SortOperator::plan_groups(keys.len(), &infos, size, states)?;
            let sort = Arc::new(sort.with_form(form));
            let (bound, columns) = (rows.bound(), sort.infos());
            let open = Open::new(SortedRows(Arc::clone(&sort)), bound);
            let properties = RowProperties::new(rows.properties.dependences.projected(&exprs));
            let open = self.sorted(rows, &exprs, &sort, open);
            let rows = OpenRows { properties, ..OpenRows::new(vec![open], columns) };
            return Ok(self.aggregate_rows(rows, &own_keys, &own_aggregates)?.into());
        }
        if !keys.is_empty() {
            let (parts, groups, in_slices) =
                self.group_parts(keys, (&own_aggregates, wanted), &infos, &rows)?;
            if parts.0 > 1 {
                let (parts, own) =
                    ((parts, groups), (own_keys.as_slice(), own_aggregates.as_slice(), wanted));
                return self.in_parts(rows, (&exprs, &infos), parts, own);
            }
            if in_slices {
                return Ok(self.aggregate_of(rows, keys, aggregates, groups)?.into());
            }
        }
        let is_ready = |open: &Open| open.is_stored_whole() && !computes(&exprs);
        if self.choices.micro_model != MicroModel::MultiPass || rows.branches.iter().all(is_ready) {
            return Ok(self.aggregate_rows(rows, keys, aggregates)?.into());
        }
        let rows = self.materialized(rows, &exprs)?;
        Ok(self.aggregate_rows(rows, &own_keys, &own_aggregates)?.into())
    }

    /// In which order rows come to groups; they are sorted only where the keys and arguments can be stored.
    fn group_order(
        &self,
        keys: usize,
        (infos, aggregates): (&[ColumnInfo], &[Aggregate]),
        rows: &OpenRows,
    ) -> Result<GroupOrder, Unsupported> {
        let size = self.sort_size(rows);
        let lacks = SortOperator::plan_groups(keys, infos, size, &mut States::default()).err();
        let rule = match (self.choices.micro_model.counts_places(), &lacks) {
            (true, None) => (GroupOrder::Sorted, "the micro model sorts, then reduces"),
            (true, Some(_)) => (GroupOrder::Arrival, "the keys or arguments cannot be stored"),
            (false, _) => (GroupOrder::Arrival, "a table takes rows in any order"),
        };
        let site = self.groups.to_string();
        let why_not_strided =
            || why_not_strided(&infos[..keys.min(infos.len())], aggregates, infos, rows.bound());
        self.chooser.choose(&site, rule, |value| match (value, &lacks) {
            (GroupOrder::Arrival, _) => Ok(()),
            (_, Some(lacks)) => Err(lacks.to_string()),
            (GroupOrder::Sorted, None) => Ok(()),
            (GroupOrder::Strided, None) => why_not_strided().map_or(Ok(()), Err),
        })
    }

    /// Into how many parts rows are brought before, about how many groups there are, where they may be far from each other, and whether
    /// blocks are thought to have them all at once or slice by slice.
    fn group_parts(
        &self,
        keys: &[Expr],
        (aggregates, wanted): (&[Aggregate], Wanted),
        infos: &[ColumnInfo],
        rows: &OpenRows,
    ) -> Result<(GroupParts, Option<u64>, bool), Unsupported> {
        let (lacks, table) =
            (self.lacks_group_parts(infos, rows), self.scattered(keys, aggregates, infos, rows));
        let in_slices = table.as_ref().is_some_and(|table| self.suits_slices(table, aggregates, rows));
        let (parts, reason) = match in_slices && lacks.is_none() {
            true => (
                GroupParts(1),
                "blocks have the groups in their memory, all at once or slice by slice".into(),
            ),
            false => self.parts_by_rule(lacks.is_some(), table.as_ref(), rows),
        };
        let is_hashed = table.as_ref().is_some_and(|table| table.dense.is_none());
        let may_deliver = is_hashed && aggregates.is_empty() && wanted == Wanted::Rows;
        let (parts, reason) = match may_deliver.then(|| self.parts_to_deliver(parts, infos, rows)).flatten() {
            Some(parts) => (parts, "a worker's cache has room for a table of a part's rows".into()),
            None => (parts, reason),
        };
        let site = self.groups.to_string();
        let estimate = table.as_ref().map(|table| table.estimate(rows.expected(), &self.choices.calibration));
        let rule = ((parts, &*reason), estimate);
        let parts = self.chooser.choose_by(&site, rule, |value: GroupParts| match &lacks {
            _ if value == GroupParts(1) => Ok(()),
            Some(lacks) => Err(lacks.clone()),
            None => PartStore::admits(value.0, self.shape),
        })?;
        Ok((parts, table.map(|table| table.groups), in_slices))
    }

    /// Whether blocks are thought to have the groups all at once or slice by slice.
    fn suits_slices(&self, table: &TableSize, aggregates: &[Aggregate], rows: &OpenRows) -> bool {
        let is_simple = |branch: &Open| branch.is_single() && !branch.has_probes();
        let comes_again = rows.branches.iter().all(is_simple) && !aggregates.iter().any(|own| own.distinct);
        let of_slots = |bytes| fits_in_slices(table.slots, bytes, rows.expected(), self.shape);
        let resolves = self.choices.micro_model == MicroModel::Resolution && !self.shape.is_serial();
        resolves && comes_again && table.slice.is_some_and(of_slots)
    }

    /// Why rows cannot come in parts.
    pub(super) fn lacks_group_parts(&self, infos: &[ColumnInfo], rows: &OpenRows) -> Option<String> {
        match () {
            () if !self.shape.is_serial() && !rows.branches.iter().all(Open::is_single) => {
                Some("a join may make several rows of one, and a block finds places for as many rows at a time as it has threads".into())
            }
            () => PartStore::lacks(infos, (part_size(rows), GroupParts::most()), self.shape),
        }
    }

    /// What is thought of the table of groups by some keys that may be far from each other. `infos`: of the keys, then of what is
    /// aggregated. Keys that follow from others make no more groups.
    pub(super) fn scattered(
        &self,
        keys: &[Expr],
        aggregates: &[Aggregate],
        infos: &[ColumnInfo],
        rows: &OpenRows,
    ) -> Option<TableSize> {
        let (telling, all) = (rows.telling(keys), &infos[..keys.len().min(infos.len())]);
        let multi_column_distinct = self.multi_column_distinct(all);
        let has_dependent = are_stored_beside(telling.len(), all);
        let known = KnownKeys { keys: &telling, multi_column_distinct, has_dependent };
        scattered_table(known, aggregates, infos, rows.bound(), self.shape)
    }

    /// About how many combinations of values several keys have, where they are columns of one scan, and that was counted in a sample
    /// of its rows.
    fn multi_column_distinct(&self, keys: &[ColumnInfo]) -> Option<u64> {
        let origins = keys.iter().map(|key| key.origin).collect::<Option<Vec<_>>>()?;
        let (scan, _) = *origins.first()?;
        let columns: BTreeSet<usize> = origins.iter().map(|(_, column)| *column).collect();
        let known = self
            .scans
            .get(scan)?
            .multi_column_distinct
            .iter()
            .find(|known| columns.iter().eq(&known.columns));
        known.filter(|_| origins.iter().all(|(own, _)| *own == scan)).map(|known| known.values)
    }

    /// Into how many parts rows come by the rule.
    pub(super) fn parts_by_rule(
        &self,
        are_lacking: bool,
        table: Option<&TableSize>,
        rows: &OpenRows,
    ) -> (GroupParts, Cow<'static, str>) {
        let off = GroupParts(1);
        match table {
            _ if are_lacking => (off, "rows cannot be stored in parts".into()),
            _ if self.choices.micro_model != MicroModel::Resolution => {
                (off, "the micro model adds rows as they come".into())
            }
            None => (off, "not known to be many groups far from each other".into()),
            Some(table) => rule_of_parts(table, rows.expected(), rows.bound(), self.shape, self.choices),
        }
    }

    /// Rows come into parts, and part after part to their groups.
    fn in_parts(
        &mut self,
        mut rows: OpenRows,
        (exprs, infos): (&[Expr], &[ColumnInfo]),
        (parts, known): (GroupParts, Option<u64>),
        (keys, aggregates, wanted): (&[Expr], &[Aggregate], Wanted),
    ) -> Result<Grouped, Unsupported> {
        let (size, bound) = (part_size(&rows), rows.bound());
        let name = self.groups.to_string();
        let site = Site { chooser: self.chooser, name: &name };
        let states = self.states.of(Purpose::Store);
        let store = PartStore::plan(infos, size, parts.0, self.shape, states)?;
        rows.project(exprs.to_vec());
        let properties = RowProperties::new(rows.properties.dependences.clone());
        let source = |store: Arc<PartStore>, in_blocks, beyond| {
            let columns = store.infos();
            let rows = OpenRows::new(vec![Open::new(PartRows { store, in_blocks, beyond }, bound)], columns);
            OpenRows { properties: properties.clone(), ..rows }
        };
        let planned = source(Arc::new(store.clone()), false, None);
        let from = Contents::Rows(aggregates);
        let groups = self.plan_aggregate(&planned, keys, from, (Some(parts), known))?;
        let used = groups.parts_used(store.bits());
        let store = store.of_parts(u32::try_from(used).map_err(Unsupported::internal)?);
        let store = match groups.takes_hashes() {
            true => store.with_hashes(self.states.of(Purpose::Store)),
            false => store,
        };
        let (store, hashes) = (Arc::new(store.clone()), store.hashes());
        let lacks = match wanted {
            _ if !aggregates.is_empty() => Some("rows are added up in the table of all groups"),
            Wanted::Table => Some("groups are read from the table of all by whoever makes coarser ones"),
            Wanted::Rows => self.lacks_delivery(&groups, (&*store, infos)),
        };
        let delivered = self.delivery(&store, &groups, (site, lacks), (bound, parts))?;
        let beyond = delivered.as_ref().map(|(tables, _)| Arc::clone(tables));
        let stored = source(Arc::clone(&store), groups.takes_parts(), beyond);
        let sink = IntoParts { store, by: Arc::<AggregateOperator>::clone(&groups) };
        self.close(rows.branches, Arc::new(sink));
        self.add_to_groups(stored, (&groups, hashes));
        Ok(Grouped::Table(groups, delivered.map(|(_, rows)| rows)))
    }

    /// Under multi-pass, an aggregation is a kernel of its own over the keys and arguments of the rows that are left
    /// (HorseQC, Table 4, B1 and C1: what is materialised is filtered).
    fn materialized(&mut self, mut rows: OpenRows, exprs: &[Expr]) -> Result<OpenRows, Unsupported> {
        rows.project(exprs.to_vec());
        self.materialize(&mut rows)?;
        Ok(rows)
    }

    /// C1's global sort: keys and arguments are stored, and delivered group by group by `open`, whose source is the sort.
    pub(super) fn sorted(
        &mut self,
        mut rows: OpenRows,
        exprs: &[Expr],
        sort: &Arc<SortOperator>,
        open: Open,
    ) -> Open {
        rows.push(Project(exprs.to_vec()));
        self.close(rows.branches, Arc::new(SortRows(Arc::clone(sort))));
        Open { sorted: Some(sort.sorting(None)), ..open }
    }

    pub(super) fn aggregate_rows(
        &mut self,
        rows: OpenRows,
        keys: &[Expr],
        aggregates: &[Aggregate],
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        self.aggregate_of(rows, keys, aggregates, None)
    }

    /// The same of about so many groups, where that is known of such rows.
    fn aggregate_of(
        &mut self,
        rows: OpenRows,
        keys: &[Expr],
        aggregates: &[Aggregate],
        groups: Option<u64>,
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        let operator = self.plan_aggregate(&rows, keys, Contents::Rows(aggregates), (None, groups))?;
        self.add_to_groups(rows, (&operator, None));
        Ok(operator)
    }

    /// Brings groups to coarser groups; `keys` are over the columns of those.
    pub(super) fn aggregate_groups(
        &mut self,
        finer: &Arc<AggregateOperator>,
        keys: &[Expr],
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        self.groups_of_groups(finer, keys, Contents::Groups(finer))
    }

    /// The same, where one of their keys has the values of those of the `aggregates` that count equal ones once.
    pub(super) fn aggregate_values_of(
        &mut self,
        finer: &Arc<AggregateOperator>,
        keys: &[Expr],
        aggregates: &[Aggregate],
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        self.groups_of_groups(finer, keys, Contents::Values(finer, aggregates))
    }

    fn groups_of_groups(
        &mut self,
        finer: &Arc<AggregateOperator>,
        keys: &[Expr],
        contents: Contents<'_>,
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        let source = GroupCells(Arc::clone(finer));
        let columns = source.columns();
        let properties = RowProperties::of_groups(finer.telling_keys().collect(), columns.len());
        let rows = OpenRows::new(vec![Open::new(source, finer.row_bound())], columns);
        let rows = OpenRows { properties, ..rows };
        let operator = self.plan_aggregate(&rows, keys, contents, (None, None))?;
        self.add_to_groups(rows, (&operator, None));
        Ok(operator)
    }

    fn plan_aggregate(
        &mut self,
        rows: &OpenRows,
        keys: &[Expr],
        contents: Contents<'_>,
        (parts, groups): (Option<GroupParts>, Option<u64>),
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        let site = self.groups.to_string();
        let input = Input {
            site: Site { chooser: self.chooser, name: &site },
            shape: self.shape,
            choices: self.choices,
            columns: &rows.columns,
            row_bound: rows.bound(),
            expected_rows: rows.expected(),
            thread_rows: rows.branches.iter().map(|open| open.thread_bound(self.shape)).max().unwrap_or(0),
            is_single: rows.branches.iter().all(Open::is_single),
            has_probes: rows.branches.iter().any(Open::has_probes),
            is_sorted: rows.branches.iter().all(|open| open.sorted.is_some()),
            followers: rows
                .properties
                .dependences
                .projected(keys)
                .followers(&columns_of(keys, &rows.columns)),
            parts,
            groups,
            made: TableChoices::default(),
        };
        let states = self.states.of(Purpose::Table);
        AggregateOperator::plan(keys, contents, &input, states).map(Arc::new)
    }

    /// Ends rows in their groups. `hashes`: the state of the hash of each row's keys, where there is one.
    fn add_to_groups(
        &mut self,
        rows: OpenRows,
        (operator, hashes): (&Arc<AggregateOperator>, Option<usize>),
    ) {
        self.close(rows.branches, Arc::new(AddToGroups(Arc::clone(operator), hashes)));
        if operator.has_partials() {
            let open = Open::new(Groups(Arc::clone(operator)), 1);
            self.close(vec![open], Arc::new(ReduceSums(Arc::clone(operator))));
        }
    }
}

/// The groups as rows.
pub(super) fn groups_of(operator: Arc<AggregateOperator>) -> OpenRows {
    let (columns, bound) = (operator.columns(), operator.row_bound());
    let properties = RowProperties::of_groups(operator.telling_keys().collect(), columns.len());
    // Groups lie anywhere in their table: all of them may be one thread's.
    let open = Open::new(Groups(operator), bound);
    OpenRows { properties, ..OpenRows::new(vec![open], columns) }
}

/// How many rows come into parts.
fn part_size(rows: &OpenRows) -> PartSize {
    let is_exact = !rows.branches.iter().any(Open::is_filtered);
    PartSize { row_bound: rows.bound(), expected: rows.expected(), is_exact }
}

/// The keys and arguments as a projection, then keys and aggregates over its columns.
pub(super) fn over_columns(
    keys: &[Expr],
    aggregates: &[Aggregate],
) -> (Vec<Expr>, Vec<Expr>, Vec<Aggregate>) {
    let mut exprs = keys.to_vec();
    let mut column = |expr: &Expr| {
        let known = exprs.iter().position(|known| known == expr);
        let index = known.unwrap_or_else(|| {
            exprs.push(expr.clone());
            exprs.len() - 1
        });
        Expr::column(index, expr.data_type.clone(), expr.nullable)
    };
    let own_keys = keys.iter().enumerate();
    let own_keys = own_keys.map(|(index, key)| Expr::column(index, key.data_type.clone(), key.nullable));
    let over = |aggregate: &Aggregate| Aggregate {
        argument: aggregate.argument.as_ref().map(|argument| below_widening(argument, &mut column)),
        ..aggregate.clone()
    };
    let aggregates = aggregates.iter().map(over).collect();
    (exprs, own_keys.collect(), aggregates)
}

/// Replaces what is below casts that only widen an integer: that is what is stored.
fn below_widening(expr: &Expr, column: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
    let widens = |input: &Expr| {
        let is_integer = input.data_type.is_integer() && expr.data_type.is_integer();
        let ranges = input.data_type.full_range().zip(expr.data_type.full_range());
        is_integer && ranges.is_some_and(|(from, to)| from.within(to))
    };
    match &expr.kind {
        _ if is_pair(expr) => with_children(expr, children(expr).into_iter().map(&mut *column).collect()),
        ExprKind::Cast { input, safe } if widens(input) => {
            let input = Box::new(below_widening(input, column));
            Expr { kind: ExprKind::Cast { input, safe: *safe }, ..expr.clone() }
        }
        _ => column(expr),
    }
}
