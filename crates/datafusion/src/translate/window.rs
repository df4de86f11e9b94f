//! Window functions.
//!
//! DataFusion has a node for each set of windows that are computed together, with a sort below it. Windows that stand one above the
//! other and need no more than one order become one `Window`, whose rows are sorted once: that of partition `a` with order `b` and that
//! of partition `a, b` both go by the keys `a, b`.
//!
//! What DataFusion does not show of its expressions is read from what they print for people: whether NULLs are ignored, whether a
//! function goes through its rows in reverse, and whether there is a FILTER. Where that is not what is expected there, nothing is
//! compiled.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::functions_window::cume_dist::CumeDist;
use datafusion::functions_window::lead_lag::{WindowShift, WindowShiftKind};
use datafusion::functions_window::nth_value::{NthValue, NthValueKind};
use datafusion::functions_window::ntile::Ntile;
use datafusion::functions_window::rank::{Rank, dense_rank_udwf, percent_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::RowNumber;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;
use kelpie_compile::expr::{Expr, ExprKind, columns_read, substitute};
use kelpie_compile::plan::{
    Aggregate, Frame, FrameBound, FrameUnits, Join, JoinKind, Plan, SortKey, Window, WindowCall,
    WindowFunction,
};
use kelpie_compile::types::{DataType, Field, Literal};

use super::aggregate;
use super::derive::Below;
use super::first_row::window_of;
use super::order;
use super::plans::{fields_at, project_columns, read_again};
use super::translator::Translator;
use crate::node::{Node, name_of};
use crate::types;
use crate::window_functions::own_window;

/// A window function over the columns of the input, before an order for all of them is found.
#[derive(Clone)]
struct Translated {
    partition: Vec<Expr>,
    order: Vec<SortKey>,
    call: WindowCall,
    frame: Frame,
    field: Field,
}

/// The plan of a window's node, if it is one; `None` with the reasons where it is not compiled.
pub(super) fn window(translator: &mut Translator, node: &Node) -> Option<Option<Plan>> {
    let (input, exprs) = window_of(node)?;
    Some(plan(translator, node, (input, exprs)))
}

fn plan(
    translator: &mut Translator,
    node: &Node,
    (input, exprs): (&Node, &[Arc<dyn WindowExpr>]),
) -> Option<Plan> {
    let rows = translator.plan(input);
    let schema = node.schema();
    let width = input.schema().fields().len();
    let places: Vec<usize> = (width..schema.fields().len()).collect();
    let fields = match fields_at(&schema, &places) {
        Ok(fields) => fields,
        Err(reason) => return translator.refuse(&format!("{}: {reason}", name_of(node))),
    };
    // All reasons are wanted.
    let functions: Vec<Option<Translated>> = exprs
        .iter()
        .zip(fields)
        .map(|(expr, field)| Maker { translator: &mut *translator, node, input, expr }.made(field))
        .collect();
    let (rows, functions) = (rows?, functions.into_iter().collect::<Option<Vec<_>>>()?);
    let keeps_order = functions.iter().any(|function| function.order.is_empty());
    let rows = match keeps_order && functions.iter().all(|function| function.partition.is_empty()) {
        // Numbers without an order are those of the rows as they come.
        true => rows,
        false => order::unsorted(rows),
    };
    if let Some(base) = read_again(&rows)
        && functions.iter().all(|function| function.is_of_partition(base.fields().len()))
    {
        return by_groups(base, rows.clone(), functions);
    }
    Some(functions.into_iter().fold(rows, added))
}

/// Aggregates of whole partitions need no order: they are those of groups, which rows find by their keys. Those of one partition
/// after the other. `plan` has the columns of `rows` first.
fn by_groups(rows: &Plan, mut plan: Plan, mut functions: Vec<Translated>) -> Option<Plan> {
    while let Some(first) = functions.first() {
        let keys = first.partition.clone();
        // They follow each other in the order of the columns.
        let count = functions.iter().take_while(|function| function.partition == keys).count();
        let aggregates = functions.drain(..count).filter_map(Translated::aggregate).collect::<Vec<_>>();
        let (width, own) = (plan.fields().len(), aggregates.len());
        let names = vec![String::new(); keys.len()];
        let pairs = keys.iter().enumerate();
        let pairs =
            pairs.map(|(place, key)| (Expr::column(place, key.data_type.clone(), key.nullable), key.clone()));
        let join = Join {
            kind: JoinKind::Inner,
            keys: pairs.collect(),
            build: Plan::Aggregate { input: Box::new(rows.clone()), keys: keys.clone(), aggregates, names },
            probe: plan,
            residual: None,
            null_equal: true,
            null_aware: false,
        };
        let groups = keys.len() + own;
        let columns: Vec<usize> = (groups..groups + width).chain(keys.len()..groups).collect();
        plan = project_columns(Plan::Join(Box::new(join)), &columns)?;
    }
    Some(plan)
}

/// A window with one more function: the one on top, where its order is that of the function too.
fn added(rows: Plan, function: Translated) -> Plan {
    if let Plan::Window(window) = &rows
        && let Some(window) = shared(window, &function)
    {
        return window;
    }
    // Of what a window gives, only some columns may be left.
    if let Plan::Project { input, exprs, names } = &rows
        && let Plan::Window(window) = &**input
        && let Some(below) = function.below(exprs)
        && let Some(shared) = shared(window, &below)
    {
        let (mut exprs, mut names) = (exprs.clone(), names.clone());
        let Field { name, data_type, nullable } = below.field;
        exprs.push(Expr::column(input.fields().len(), data_type, nullable));
        names.push(name);
        return Plan::Project { input: Box::new(shared), exprs, names };
    }
    // There is an order for one function.
    let (keys, lengths) = common_order(&[], &function).unwrap_or_default();
    Plan::Window(Box::new(Window { input: rows, keys, functions: vec![function.over(lengths)] }))
}

/// A window with a function more, where its order is that of the function too, which reads what the window reads.
fn shared(window: &Window, function: &Translated) -> Option<Plan> {
    let is_below = function.reads_below(window.input.fields().len());
    let (keys, lengths) = common_order(&window.keys, function).filter(|_| is_below)?;
    let mut window = window.clone();
    window.keys = keys;
    window.functions.push(function.clone().over(lengths));
    Some(Plan::Window(Box::new(window)))
}

/// The keys of a sort by which rows are in the order of some keys and in that of a function too; and how many first ones are the
/// function's partition, and its partition and order.
fn common_order(keys: &[SortKey], function: &Translated) -> Option<(Vec<SortKey>, (usize, usize))> {
    let mut common = keys.to_vec();
    let mut left: Vec<&Expr> = Vec::new();
    for key in &function.partition {
        if !left.contains(&key) {
            left.push(key);
        }
    }
    let partition = left.len();
    for key in common.iter().take(partition) {
        let place = left.iter().position(|own| **own == key.expr)?;
        left.remove(place);
    }
    let by = |expr: &Expr| SortKey { expr: expr.clone(), descending: false, nulls_first: false };
    common.extend(left.into_iter().map(by));
    let mut place = partition;
    for key in &function.order {
        // Rows of a partition agree in its keys, and in those of the order that stand before.
        let known = common.get(..place).unwrap_or_default();
        if !function.measures() && known.iter().any(|other| other.expr == key.expr) {
            continue;
        }
        match common.get(place) {
            Some(other) if other == key => {}
            Some(_) => return None,
            None => common.push(key.clone()),
        }
        place += 1;
    }
    Some((common, (partition, place)))
}

impl Translated {
    /// Whether its frame is bounded by distances of its key.
    fn measures(&self) -> bool {
        let Frame { units, start, end } = &self.frame;
        *units == FrameUnits::Range && [start, end].into_iter().any(|bound| bound.distance().is_some())
    }

    /// The same over the columns of which a projection passes some on, and does nothing else.
    fn below(&self, columns: &[Expr]) -> Option<Translated> {
        let are_passed = columns.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_)));
        let over = |expr: &Expr| {
            substitute(expr, &|expr| match expr.kind {
                ExprKind::Column(column) => columns.get(column).cloned(),
                _ => None,
            })
        };
        let mut below = self.clone();
        below.partition.iter_mut().for_each(|key| *key = over(key));
        below.order.iter_mut().for_each(|key| key.expr = over(&key.expr));
        match &mut below.call {
            WindowCall::Shifted { argument, .. }
            | WindowCall::At { argument, .. }
            | WindowCall::Aggregate { argument: Some(argument), .. } => *argument = over(argument),
            _ => {}
        }
        are_passed.then_some(below)
    }

    /// Whether it reads no more than so many first columns.
    fn reads_below(&self, width: usize) -> bool {
        let order = self.order.iter().map(|key| &key.expr);
        let exprs = self.partition.iter().chain(order).chain(self.call.argument());
        exprs.flat_map(columns_read).all(|column| column < width)
    }

    /// Whether it is an aggregate of whole partitions, which groups tell apart as partitions do, over so many first columns.
    fn is_of_partition(&self, width: usize) -> bool {
        matches!(self.call, WindowCall::Aggregate { .. })
            && self.reads_below(width)
            && self.frame.is_partition()
            && self.partition.iter().all(|key| !key.data_type.is_float())
    }

    fn aggregate(self) -> Option<Aggregate> {
        let WindowCall::Aggregate { function, argument } = self.call else { return None };
        Some(Aggregate { function, argument, distinct: false, field: self.field })
    }

    fn over(self, (partition, order): (usize, usize)) -> WindowFunction {
        let Translated { call, frame, field, .. } = self;
        WindowFunction { call, partition, order, frame, field }
    }
}

/// Translates one function.
struct Maker<'a> {
    translator: &'a mut Translator,
    node: &'a Node,
    input: &'a Node,
    expr: &'a Arc<dyn WindowExpr>,
}

impl Maker<'_> {
    fn refuse<T>(&mut self, why: &str) -> Option<T> {
        let reason = format!("{}: {}: {why}", name_of(self.node), self.expr.name());
        self.translator.refuse(&reason)
    }

    fn made(&mut self, field: Field) -> Option<Translated> {
        let schema = self.input.schema();
        let operator = name_of(self.node);
        let mut over_input = self.translator.exprs_over(Below::Node(self.input), &schema, &operator);
        let partition = over_input.exprs(self.expr.partition_by());
        let order: Vec<Option<SortKey>> = self
            .expr
            .order_by()
            .iter()
            .map(|key| {
                let expr = over_input.expr(&key.expr)?;
                let nulls_first = key.options.nulls_first && expr.nullable;
                Some(SortKey { expr, descending: key.options.descending, nulls_first })
            })
            .collect();
        let call = self.call(&field);
        let (partition, order) = (partition?, order.into_iter().collect::<Option<Vec<_>>>()?);
        let call = call?;
        let frame = match call.has_frame() {
            true => self.frame(&order)?,
            false => Frame::PARTITION,
        };
        Some(Translated { partition, order, call, frame, field })
    }

    fn call(&mut self, field: &Field) -> Option<WindowCall> {
        let expr = self.expr.as_any();
        if let Some(plain) = expr.downcast_ref::<PlainAggregateWindowExpr>() {
            return self.aggregate(plain.get_aggregate_expr(), &format!("{plain:?}"));
        }
        if let Some(sliding) = expr.downcast_ref::<SlidingAggregateWindowExpr>() {
            return self.aggregate(sliding.get_aggregate_expr(), &format!("{sliding:?}"));
        }
        let standard = expr.downcast_ref::<StandardWindowExpr>();
        let call = standard.map(StandardWindowExpr::get_standard_func_expr);
        match call.and_then(|call| call.as_any().downcast_ref::<WindowUDFExpr>()) {
            Some(call) => self.standard(call, field),
            None => self.refuse("this window function is not compiled"),
        }
    }

    fn aggregate(&mut self, call: &AggregateFunctionExpr, shown: &str) -> Option<WindowCall> {
        if !shown.ends_with("filter: None }") {
            return self.refuse("FILTER of a window is not compiled here");
        }
        if call.is_distinct() {
            return self.refuse("DISTINCT in a window is not compiled");
        }
        let operator = name_of(self.node);
        let (function, argument) = aggregate::one(self.translator, (self.input, &operator), call, None)?;
        Some(WindowCall::Aggregate { function, argument })
    }

    fn standard(&mut self, call: &WindowUDFExpr, field: &Field) -> Option<WindowCall> {
        let own = own_window(call.fun());
        let function = own.inner().as_ref();
        if function.is::<RowNumber>() {
            return Some(WindowCall::RowNumber);
        }
        if function.is::<CumeDist>() {
            return Some(WindowCall::CumeDist);
        }
        if function.is::<Rank>() {
            let ranks = [
                (rank_udwf(), WindowCall::Rank),
                (dense_rank_udwf(), WindowCall::DenseRank),
                (percent_rank_udwf(), WindowCall::PercentRank),
            ];
            let known = ranks.into_iter().find(|(known, _)| **known == *own);
            return known.map(|(_, call)| call).or_else(|| self.refuse("this rank is not compiled"));
        }
        if function.is::<Ntile>() {
            return match call.args().first().and_then(constant) {
                Some(parts) if parts > 0 => Some(WindowCall::Ntile(parts as u64)),
                _ => self.refuse("a number of parts that is no constant above 0 is not compiled"),
            };
        }
        let Some(shown) = Shown::of(call) else { return self.refuse("this window function is not compiled") };
        if let Some(shift) = function.downcast_ref::<WindowShift>() {
            return self.shifted(call, shift.kind(), shown, field);
        }
        if let Some(nth) = function.downcast_ref::<NthValue>() {
            return self.at(call, nth.kind(), shown);
        }
        self.refuse(&format!("the window function {} is not compiled", call.fun().name()))
    }

    fn argument(&mut self, call: &WindowUDFExpr) -> Option<Expr> {
        let Some(argument) = call.args().first() else { return self.refuse("an argument is expected") };
        let (schema, operator) = (self.input.schema(), name_of(self.node));
        let mut over_input = self.translator.exprs_over(Below::Node(self.input), &schema, &operator);
        let argument = over_input.expr(argument)?;
        match argument.data_type {
            DataType::Null => self.refuse("NULL as an argument is not compiled"),
            _ => Some(argument),
        }
    }

    fn shifted(
        &mut self,
        call: &WindowUDFExpr,
        kind: &WindowShiftKind,
        shown: Shown,
        field: &Field,
    ) -> Option<WindowCall> {
        let argument = self.argument(call);
        let rows = match call.args().get(1) {
            None => Some(1),
            Some(rows) if is_null(rows) => Some(1),
            Some(rows) => constant(rows),
        };
        let Some(rows) = rows.filter(|rows| rows.unsigned_abs() < 1 << 40) else {
            return self.refuse("a distance that is no constant number of rows is not compiled");
        };
        let default = match call.args().get(2) {
            None => None,
            Some(default) if is_null(default) => None,
            Some(default) => match self.default(default, field) {
                Some(default) => Some(default),
                None => {
                    return self
                        .refuse("a default that is no constant of the argument's type is not compiled");
                }
            },
        };
        let is_before = (*kind == WindowShiftKind::Lag) != shown.is_reversed;
        let offset = if is_before { -rows } else { rows };
        Some(WindowCall::Shifted { argument: argument?, offset, default, ignores_nulls: shown.ignores_nulls })
    }

    /// A constant as one of the result's type.
    fn default(&mut self, default: &Arc<dyn PhysicalExpr>, field: &Field) -> Option<Expr> {
        let value = default.downcast_ref::<LiteralExpr>()?.value();
        let schema = self.node.schema();
        let arrow = schema.fields().iter().find(|own| *own.name() == field.name)?;
        let value = value.cast_to(arrow.data_type()).ok()?;
        Some(Expr::literal(types::literal(&value)?, field.data_type.clone()))
    }

    fn at(&mut self, call: &WindowUDFExpr, kind: &NthValueKind, shown: Shown) -> Option<WindowCall> {
        let argument = self.argument(call);
        let place = match kind {
            NthValueKind::First => Some(1),
            NthValueKind::Last => Some(-1),
            NthValueKind::Nth => call.args().get(1).and_then(constant),
        };
        let Some(place) = place.filter(|place| *place != 0 && place.unsigned_abs() < 1 << 40) else {
            return self.refuse("a place that is no constant, or 0, is not compiled");
        };
        let place = match (kind, shown.is_reversed) {
            (NthValueKind::Nth, true) => -place,
            _ => place,
        };
        Some(WindowCall::At { argument: argument?, place, ignores_nulls: shown.ignores_nulls })
    }

    fn frame(&mut self, order: &[SortKey]) -> Option<Frame> {
        let frame = self.expr.get_window_frame();
        let units = match frame.units {
            WindowFrameUnits::Rows => FrameUnits::Rows,
            WindowFrameUnits::Range => FrameUnits::Range,
            WindowFrameUnits::Groups => FrameUnits::Groups,
        };
        let key = order.first().map(|key| &key.expr.data_type);
        let start = bound(&frame.start_bound, (units, key));
        let end = bound(&frame.end_bound, (units, key));
        match start.zip(end) {
            Some((start, end)) => Some(Frame { units, start, end }),
            None => self.refuse("a frame of such distances is not compiled"),
        }
    }
}

/// What a call of a window function prints of itself, and shows nowhere else.
#[derive(Debug, Clone, Copy)]
struct Shown {
    is_reversed: bool,
    ignores_nulls: bool,
}

impl Shown {
    fn of(call: &WindowUDFExpr) -> Option<Shown> {
        let shown = format!("{call:?}");
        [(false, false), (false, true), (true, false), (true, true)]
            .into_iter()
            .map(|(is_reversed, ignores_nulls)| Shown { is_reversed, ignores_nulls })
            .find(|found| {
                let Shown { is_reversed, ignores_nulls } = found;
                shown.ends_with(&format!("is_reversed: {is_reversed}, ignore_nulls: {ignores_nulls} }}"))
            })
    }
}

fn is_null(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<LiteralExpr>().is_some_and(|literal| literal.value().is_null())
}

/// A constant integer.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match types::literal(expr.downcast_ref::<LiteralExpr>()?.value())? {
        Literal::Int(value) => i64::try_from(value).ok(),
        _ => None,
    }
}

/// A bound of a frame over a key of a type.
fn bound(bound: &WindowFrameBound, (units, key): (FrameUnits, Option<&DataType>)) -> Option<FrameBound> {
    let distance = |value: &ScalarValue| {
        let literal = types::literal(value)?;
        let data_type = match (units, &literal) {
            (FrameUnits::Range, Literal::Interval(_)) => DataType::Interval,
            (FrameUnits::Range, _) => key?.clone(),
            _ => DataType::Int64,
        };
        let kind = ExprKind::Literal(literal);
        Some(Expr { kind, data_type, nullable: false })
    };
    Some(match bound {
        WindowFrameBound::Preceding(value) if value.is_null() => FrameBound::UnboundedPreceding,
        WindowFrameBound::Preceding(value) => FrameBound::Preceding(distance(value)?),
        WindowFrameBound::CurrentRow => FrameBound::CurrentRow,
        WindowFrameBound::Following(value) if value.is_null() => FrameBound::UnboundedFollowing,
        WindowFrameBound::Following(value) => FrameBound::Following(distance(value)?),
    })
}
