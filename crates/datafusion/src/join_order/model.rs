//! The graph of a flat tree: classes of equal columns, and how much everything is estimated to keep.

use datafusion::arrow::datatypes::DataType;

use super::flatten::{Flat, Item, ReducerItem};
use super::graph::{Class, Condition, Correlation, Graph, GraphNode, NodeSet, Reducer};
use super::selectivity::{filtered, selectivity};
use super::statistics::{ColumnEstimate, Estimate, Estimator, RESIDUAL, SMALLEST_ANTI, estimate};

/// A graph, and which class each column of the flat tree belongs to.
pub(crate) struct Model {
    pub graph: Graph,
    pub class_of: Vec<Option<usize>>,
}

/// The graph of a flat tree; `None` where statistics are missing or joins cannot be exchanged safely.
pub(crate) fn model(flat: &Flat, estimator: &Estimator) -> Option<Model> {
    let (class_of, classes) = classes(flat);
    if has_equal_floats(flat, &class_of) {
        return None;
    }
    let mut estimates = relations(flat, &class_of, estimator)?;
    leave_out_keys_beyond(flat, (&class_of, classes), &mut estimates);
    // Every column of every relation, in the order of their numbers.
    let columns = Estimate {
        rows: 1.0,
        base_rows: 1.0,
        columns: estimates.iter().flatten().flat_map(|estimate| estimate.columns.iter().cloned()).collect(),
    };
    let members = members(flat, &class_of, classes, &estimates);
    let correlations = correlations(&members, &estimates);
    let nodes = flat.items.iter().zip(&estimates).map(|(item, estimate)| {
        Some(match (item, estimate) {
            (Item::Relation { .. }, Some(estimate)) => GraphNode { rows: estimate.rows, reducer: None },
            (Item::Reducer(reducer), _) => reducer_node(flat, reducer, &estimates, &class_of, estimator)?,
            (Item::Relation { .. }, None) => return None,
        })
    });
    let conditions = flat.predicates.iter().filter(|predicate| predicate.nodes.only().is_none());
    let conditions = conditions
        .map(|predicate| Condition {
            nodes: predicate.nodes,
            selectivity: selectivity(&predicate.expr, &columns).max(1e-6),
        })
        .collect();
    let graph = Graph::new(nodes.collect::<Option<_>>()?, members, conditions, correlations);
    Some(Model { graph, class_of })
}

/// Numbers the classes: of the columns that equalities join, and of each key of a reducer.
pub(crate) fn classes(flat: &Flat) -> (Vec<Option<usize>>, usize) {
    let mut parents: Vec<usize> = (0..flat.columns.len()).collect();
    fn root(parents: &[usize], mut column: usize) -> usize {
        while parents[column] != column {
            column = parents[column];
        }
        column
    }
    let mut keys: Vec<usize> = Vec::new();
    for (a, b) in &flat.equalities {
        let (root_a, root_b) = (root(&parents, *a), root(&parents, *b));
        parents[root_b] = root_a;
        keys.extend([*a, *b]);
    }
    for item in &flat.items {
        if let Item::Reducer(reducer) = item {
            keys.extend(reducer.keys.iter().map(|(column, _)| *column));
        }
    }
    let mut class_of = vec![None; flat.columns.len()];
    let mut roots: Vec<usize> = Vec::new();
    for key in keys {
        let root = root(&parents, key);
        let class = roots.iter().position(|known| *known == root).unwrap_or_else(|| {
            roots.push(root);
            roots.len() - 1
        });
        class_of[key] = Some(class);
    }
    (class_of, roots.len())
}

/// Whether a relation has two floats in one class: a filter that compares them takes 0.0 for -0.0, which keys do not.
fn has_equal_floats(flat: &Flat, class_of: &[Option<usize>]) -> bool {
    let mut seen: Vec<(usize, usize)> = Vec::new();
    for ((node, index), class) in flat.columns.iter().zip(class_of) {
        let (Some(class), Item::Relation { plan, .. }) = (class, &flat.items[*node]) else { continue };
        let schema = plan.schema();
        let float = matches!(
            schema.field(*index).data_type(),
            DataType::Float16 | DataType::Float32 | DataType::Float64
        );
        if float && seen.contains(&(*node, *class)) {
            return true;
        }
        seen.push((*node, *class));
    }
    false
}

/// Relations with the predicates that read them alone; reducers have none.
fn relations(
    flat: &Flat,
    class_of: &[Option<usize>],
    estimator: &Estimator,
) -> Option<Vec<Option<Estimate>>> {
    let mut estimates = Vec::with_capacity(flat.items.len());
    for (node, item) in flat.items.iter().enumerate() {
        let Item::Relation { plan, first } = item else {
            estimates.push(None);
            continue;
        };
        let mut known = estimate(plan, estimator)?;
        for predicate in flat.predicates.iter().filter(|p| p.nodes == NodeSet::of(node)) {
            let local = super::flatten::shifted(&predicate.expr, *first)?;
            known = filtered(known, &local);
        }
        let width = plan.schema().fields().len();
        let classes = &class_of[*first..first + width];
        for (i, class) in classes.iter().enumerate() {
            if class.is_some() && classes[..i].contains(class) {
                let distinct = known.columns[i].distinct_of(known.rows);
                known = known.thinned(1.0 / distinct);
            }
        }
        estimates.push(Some(known));
    }
    Some(estimates)
}

/// Keys beyond the values that the other members of their class have match nothing: of two hundred years of days those of five are met by
/// the sales of five years. Of a relation with one row a key as many rows stay as may match. What its filters leave is thought to be among
/// these, if it is no more: people ask for years that have sales.
fn leave_out_keys_beyond(
    flat: &Flat,
    (class_of, classes): (&[Option<usize>], usize),
    estimates: &mut [Option<Estimate>],
) {
    for class in 0..classes {
        let columns = flat.columns.iter().zip(class_of).filter(|(_, of)| **of == Some(class));
        let members: Vec<(usize, usize)> = columns.map(|(column, _)| *column).collect();
        let range = |(node, index): &(usize, usize)| estimates[*node].as_ref()?.columns.get(*index)?.range;
        let ranges: Vec<(f64, f64)> = members.iter().filter_map(range).collect();
        let low = ranges.iter().map(|(low, _)| *low).fold(f64::NEG_INFINITY, f64::max);
        let high = ranges.iter().map(|(_, high)| *high).fold(f64::INFINITY, f64::min);
        if ranges.len() < members.len() || low > high {
            continue;
        }
        for (node, index) in members {
            let Some(estimate) = estimates[node].take() else { continue };
            estimates[node] = Some(within(estimate, index, (low, high)));
        }
    }
}

/// A relation without the keys beyond a range, where a column is its key.
pub(super) fn within(mut estimate: Estimate, index: usize, (low, high): (f64, f64)) -> Estimate {
    let Some(column) = estimate.columns.get(index) else { return estimate };
    let Some((own_low, own_high)) = column.range.filter(|_| column.step > 0.0) else { return estimate };
    let is_key = column.domain.is_some_and(|domain| estimate.base_rows <= domain);
    let share = (high - low + column.step) / (own_high - own_low + column.step);
    if !is_key || share >= 1.0 {
        return estimate;
    }
    let most = (estimate.base_rows * share).max(1.0);
    estimate = estimate.at_most(most);
    if let Some(column) = estimate.columns.get_mut(index) {
        column.distinct = column.distinct.map(|distinct| distinct.min(most));
        column.range = Some((low, high));
    }
    estimate
}

/// The members of each class, with their distinct values.
fn members(
    flat: &Flat,
    class_of: &[Option<usize>],
    classes: usize,
    estimates: &[Option<Estimate>],
) -> Vec<Class> {
    let mut known: Vec<Vec<(usize, f64, ColumnEstimate)>> = vec![Vec::new(); classes];
    for ((node, index), class) in flat.columns.iter().zip(class_of) {
        let (Some(class), Some(estimate)) = (class, &estimates[*node]) else { continue };
        if known[*class].iter().all(|(other, ..)| other != node) {
            let column = estimate.columns.get(*index).cloned().unwrap_or_default();
            known[*class].push((*node, estimate.rows, column));
        }
    }
    known.iter().map(|members| class(members)).collect()
}

/// A count that is only a bound cannot be more than what the others have: a key that refers to another table has no
/// values that the other does not.
fn class(members: &[(usize, f64, ColumnEstimate)]) -> Class {
    let domain = |(_, rows, column): &(usize, f64, ColumnEstimate)| column.domain.unwrap_or(*rows);
    let mut class = Class::default();
    for (i, member) in members.iter().enumerate() {
        let (node, rows, column) = member;
        let others = members.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| domain(other));
        let most = others.fold(0.0, f64::max);
        let distinct = column.distinct_of(*rows);
        let distinct = if column.dense || most < 1.0 { distinct } else { distinct.min(most) };
        class.members.push((*node, distinct));
        class.nodes = class.nodes.union(NodeSet::of(*node));
    }
    class
}

/// Two relations that share several classes: the keys together have at most as many values as the smaller has rows.
fn correlations(classes: &[Class], estimates: &[Option<Estimate>]) -> Vec<Correlation> {
    let distinct = |class: &Class, node: usize| {
        class.members.iter().find(|(member, _)| *member == node).map(|(_, distinct)| *distinct)
    };
    let mut found = Vec::new();
    for (a, of_a) in estimates.iter().enumerate() {
        for (b, of_b) in estimates.iter().enumerate().skip(a + 1) {
            let (Some(of_a), Some(of_b)) = (of_a, of_b) else { continue };
            let shared =
                classes.iter().filter_map(|class| Some(distinct(class, a)?.max(distinct(class, b)?)));
            let (count, values) = shared.fold((0, 1.0), |(n, product), d| (n + 1, product * d));
            let factor = values / of_a.base_rows.min(of_b.base_rows).max(1.0);
            if count > 1 && factor > 1.0 {
                found.push(Correlation { pair: (a, b), factor });
            }
        }
    }
    found
}

fn reducer_node(
    flat: &Flat,
    reducer: &ReducerItem,
    estimates: &[Option<Estimate>],
    class_of: &[Option<usize>],
    estimator: &Estimator,
) -> Option<GraphNode> {
    let own = estimate(&reducer.plan, estimator)?;
    let (mut kept_values, mut own_values): (f64, f64) = (1.0, 1.0);
    let mut kept_rows: f64 = 1.0;
    let mut classes = Vec::new();
    for (column, inner) in &reducer.keys {
        let (node, index) = flat.columns.get(*column)?;
        let kept = estimates.get(*node)?.as_ref()?;
        kept_values *= kept.columns.get(*index).cloned().unwrap_or_default().distinct_of(kept.rows);
        own_values *= own.of_expr(inner).distinct_of(own.rows);
        kept_rows = kept_rows.max(kept.rows);
        let class = class_of.get(*column).copied().flatten()?;
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    let share = own_values.min(own.rows) / kept_values.min(kept_rows).max(1.0);
    let residual = if reducer.filter.is_some() { RESIDUAL } else { 1.0 };
    let keeps = (share.min(1.0) * residual).max(1e-6);
    let keeps = if reducer.anti { (1.0 - keeps).max(SMALLEST_ANTI) } else { keeps };
    Some(GraphNode {
        rows: own.rows,
        reducer: Some(Reducer { classes, needs: reducer.needs, keeps, builds_kept_side: reducer.null_aware }),
    })
}
