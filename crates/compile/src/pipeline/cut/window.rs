//! Windows: rows are stored and sorted, told apart in passes over them, and delivered with the values of the functions.

use std::sync::Arc;

use super::first_ranks::RankLimit;
use super::properties::RowProperties;
use super::{Cut, Open, OpenRows};
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, children, is_pair, with_children};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::roles::Source;
use crate::operator::sort::words::{WordKey, Words};
use crate::operator::sort::{NumberedRows, SortOperator, SortedRows};
use crate::operator::window::{
    PartitionCells, RunEnds, RunPlaces, StoredWindow, TreeLevel, TreeNodes, WindowOperator, WindowRows,
};
use crate::plan::{SortKey, Window, WindowCall, WindowFunction};
use crate::program::{Purpose, Sorting};
use crate::types::{DataType, Literal};

impl Cut<'_> {
    pub(super) fn window(&mut self, window: &Window) -> Result<OpenRows, Unsupported> {
        let limit = self.rank_limit.take();
        if !window.keys.is_empty() {
            return self.window_rows(window, limit);
        }
        // Rows whose places are counted before they are written keep their order, and whoever sorts them by nothing leaves them in it.
        let counts = self.counts;
        self.counts = Some(self.counts_of_rows());
        let rows = self.window_rows(window, None);
        self.counts = counts;
        rows
    }

    fn window_rows(&mut self, window: &Window, limit: Option<RankLimit>) -> Result<OpenRows, Unsupported> {
        let rows = self.window_input(window, limit)?;
        let mut stored = Stored::of(&rows, window.input.fields().len());
        let keys: Vec<SortKey> = window.keys.iter().map(|key| stored.key(key)).collect();
        let functions: Vec<WindowFunction> =
            window.functions.iter().map(|function| stored.function(function)).collect();
        let word_keys = stored.words(&keys, &functions);
        let infos = columns_of(&stored.exprs, &rows.columns);
        let (bound, size) = (rows.bound(), self.sort_size(&rows));
        let words = Words::plan(&word_keys, &infos)?;
        let form = self.sort_form(&self.groups.to_string())?;
        let states = self.states.of(Purpose::Store);
        let sort = SortOperator::plan_ranked(words, false, &infos, size, states)?;
        let sort = Arc::new(sort.with_form(form));
        let width = stored.width;
        let stored_window = StoredWindow {
            sort: Arc::clone(&sort),
            width,
            bound,
            keys: &keys,
            functions: &functions,
            are_groups: false,
        };
        let operator = Arc::new(WindowOperator::plan(&stored_window, states)?);
        let sorting = self.window_passes(rows, &stored.exprs, (&sort, &operator), bound);
        let source = WindowRows(operator);
        let columns = source.columns();
        let open = Open { sorted: sorting, in_order: Some(sort.delivered()), ..Open::new(source, bound) };
        // Of partitions the two zeros are one key, of orders two.
        let is_told = |key: &SortKey| is_below(&key.expr, width) && !key.expr.data_type.is_float();
        let order = keys.into_iter().take_while(is_told).collect();
        let properties = RowProperties { order, ..RowProperties::default() };
        self.end_operator(OpenRows { properties, ..OpenRows::new(vec![open], columns) })
    }

    /// Stores rows for a sort, and tells them apart in passes over them; the sort, where that is left to whoever reads the rows first.
    pub(super) fn window_passes(
        &mut self,
        rows: OpenRows,
        exprs: &[Expr],
        (sort, operator): (&Arc<SortOperator>, &Arc<WindowOperator>),
        bound: u64,
    ) -> Option<Sorting> {
        let ordered = || NumberedRows::new(SortedRows(Arc::clone(sort)), bound);
        let first = self.sorted(rows, exprs, sort, Open::new(ordered(), bound));
        let mut sorting = first.sorted.clone();
        if operator.has_passes() {
            self.close(vec![first], Arc::new(RunEnds(Arc::clone(operator))));
            sorting = None;
        }
        if operator.has_numbers() {
            self.close(vec![Open::new(ordered(), bound)], Arc::new(RunPlaces(Arc::clone(operator))));
        }
        for level in 1..=operator.levels() {
            let window = || Arc::clone(operator);
            let nodes = Open::new(TreeLevel { window: window(), level }, bound);
            self.close(vec![nodes], Arc::new(TreeNodes { window: window(), level }));
        }
        if operator.has_partition_cells() {
            self.close(vec![Open::new(ordered(), bound)], Arc::new(PartitionCells(Arc::clone(operator))));
        }
        sorting
    }
}

/// Whether an expression is one of so many first columns.
fn is_below(expr: &Expr, width: usize) -> bool {
    matches!(expr.kind, ExprKind::Column(column) if column < width)
}

/// What is stored of a row: the input's columns, then keys and arguments that are none of them.
struct Stored {
    exprs: Vec<Expr>,
    width: usize,
}

impl Stored {
    fn of(rows: &OpenRows, width: usize) -> Stored {
        let column =
            |(place, info): (usize, &ColumnInfo)| Expr::column(place, info.data_type.clone(), info.nullable);
        Stored { exprs: rows.columns.iter().enumerate().map(column).take(width).collect(), width }
    }

    /// The stored column that an expression is.
    fn column(&mut self, expr: &Expr) -> Expr {
        let place = match expr.kind {
            ExprKind::Column(place) => place,
            _ => {
                let known = self.exprs.iter().position(|known| known == expr);
                known.unwrap_or_else(|| {
                    self.exprs.push(expr.clone());
                    self.exprs.len() - 1
                })
            }
        };
        Expr::column(place, expr.data_type.clone(), expr.nullable)
    }

    fn key(&mut self, key: &SortKey) -> SortKey {
        SortKey { expr: self.column(&key.expr), ..key.clone() }
    }

    fn function(&mut self, function: &WindowFunction) -> WindowFunction {
        let mut function = function.clone();
        match &mut function.call {
            WindowCall::Aggregate { argument: Some(argument), .. } if is_pair(argument) => {
                let pair = children(argument).into_iter().map(|value| self.column(value));
                *argument = with_children(argument, pair.collect());
            }
            WindowCall::Shifted { argument, .. }
            | WindowCall::At { argument, .. }
            | WindowCall::Aggregate { argument: Some(argument), .. } => *argument = self.column(argument),
            _ => {}
        }
        function
    }

    /// What rows are sorted by. Without keys it is a constant, by which they stay as they are.
    fn words(&mut self, keys: &[SortKey], functions: &[WindowFunction]) -> Vec<WordKey> {
        if keys.is_empty() {
            let constant = Expr::literal(Literal::Int(0), DataType::Int64);
            self.exprs.push(constant);
            let column = self.exprs.len() - 1;
            return vec![WordKey { column, descending: false, nulls_first: false, is_group: false }];
        }
        let partitions = functions.iter().map(|function| function.partition).max().unwrap_or(0);
        let word = |(place, key): (usize, &SortKey)| match key.expr.kind {
            ExprKind::Column(column) => {
                let &SortKey { descending, nulls_first, .. } = key;
                Some(WordKey { column, descending, nulls_first, is_group: place < partitions })
            }
            _ => None,
        };
        keys.iter().enumerate().filter_map(word).collect()
    }
}
