//! Enumeration over graphs of every shape, against all orders there are; estimates against what is so.

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ToDFSchema;
use datafusion::prelude::{ParquetReadOptions, SessionContext};

use super::enumerate::{EXACT_NODES, JoinTree, best_order, cost};
use super::graph::{Class, Condition, Graph, GraphNode, NodeSet, Reducer};
use super::model::within;
use super::selectivity::filtered;
use super::statistics::{Estimate, Estimator, estimate};

/// Relations of some sizes, and equalities of fresh columns between them.
fn graph(rows: &[f64], edges: &[(usize, usize)]) -> Graph {
    with_reducers(rows, edges, vec![])
}

fn with_reducers(rows: &[f64], edges: &[(usize, usize)], reducers: Vec<(f64, Reducer)>) -> Graph {
    let mut nodes: Vec<GraphNode> =
        rows.iter().map(|rows| GraphNode { rows: *rows, reducer: None }).collect();
    nodes.extend(reducers.into_iter().map(|(rows, r)| GraphNode { rows, reducer: Some(r) }));
    let class = |(a, b): &(usize, usize)| Class {
        members: vec![(*a, rows[*a]), (*b, rows[*b] / 2.0)],
        nodes: NodeSet::of(*a).union(NodeSet::of(*b)),
    };
    Graph::new(nodes, edges.iter().map(class).collect(), vec![], vec![])
}

/// The cheapest of all trees, by trying them.
fn brute_force(graph: &Graph, set: NodeSet) -> f64 {
    if set.only().is_some() {
        return 0.0;
    }
    let mut best = f64::INFINITY;
    let mut part = (set.0 - 1) & set.0;
    while part != 0 {
        let (a, b) = (NodeSet(part), set.without(NodeSet(part)));
        for (build, probe) in [(a, b), (b, a)] {
            let link = graph.link(a, b).or_else(|| graph.link(b, a));
            let Some(link) = link else { continue };
            // A reducer that must be probed: see `Reducer::builds_kept_side`.
            let kept = if graph.link(a, b).is_some() { a } else { b };
            if probe == kept && !graph.may_probe(link) {
                continue;
            }
            let join =
                graph.join_cost(link, graph.input_rows(build), graph.input_rows(probe), graph.rows(set));
            best = best.min(join + brute_force(graph, a) + brute_force(graph, b));
        }
        part = (part - 1) & set.0;
    }
    best
}

fn cross_products(graph: &Graph, tree: &JoinTree) -> usize {
    match tree {
        JoinTree::Leaf(_) => 0,
        JoinTree::Join(a, b) => {
            let (left, right) = (a.nodes(), b.nodes());
            let shared = graph.classes.iter().any(|c| c.nodes.meets(left) && c.nodes.meets(right));
            let reduces =
                [left, right].iter().any(|s| s.only().is_some_and(|n| graph.nodes[n].reducer.is_some()));
            usize::from(!shared && !reduces) + cross_products(graph, a) + cross_products(graph, b)
        }
    }
}

fn leaves(tree: &JoinTree) -> Vec<usize> {
    match tree {
        JoinTree::Leaf(node) => vec![*node],
        JoinTree::Join(a, b) => [leaves(a), leaves(b)].concat(),
    }
}

fn chain(n: usize) -> Vec<(usize, usize)> {
    (1..n).map(|i| (i - 1, i)).collect()
}
fn star(n: usize) -> Vec<(usize, usize)> {
    (1..n).map(|i| (i, 0)).collect()
}
fn cycle(n: usize) -> Vec<(usize, usize)> {
    chain(n).into_iter().chain([(n - 1, 0)]).collect()
}
fn clique(n: usize) -> Vec<(usize, usize)> {
    (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))).collect()
}
fn sizes(n: usize, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| 10f64.powf(1.0 + 5.0 * random.f64()).round()).collect()
}

#[test]
fn the_exact_order_is_the_cheapest_of_all() {
    type Shape = fn(usize) -> Vec<(usize, usize)>;
    let shapes: [(&str, Shape); 4] = [("chain", chain), ("star", star), ("cycle", cycle), ("clique", clique)];
    for (name, edges) in shapes {
        for n in 2..=5 {
            for seed in 0..4 {
                let graph = graph(&sizes(n, seed), &edges(n));
                let (tree, found) = best_order(&graph).unwrap();
                let best = brute_force(&graph, graph.all());
                assert!((found - best).abs() <= 1e-9 * best, "{name} {n} {seed}: {found} {best}");
                assert!((cost(&graph, &tree).unwrap() - best).abs() <= 1e-9 * best, "{name} {n}");
                assert_eq!(cross_products(&graph, &tree), 0, "{name} {n}: {tree:?}");
            }
        }
    }
}

#[test]
fn every_relation_stands_once_also_beyond_the_exact_limit() {
    for n in [EXACT_NODES, EXACT_NODES + 1, 20, 40, NodeSet::CAPACITY] {
        for edges in [chain(n), star(n), cycle(n)] {
            let graph = graph(&sizes(n, 7), &edges);
            let (tree, found) = best_order(&graph).unwrap();
            let mut nodes = leaves(&tree);
            nodes.sort_unstable();
            assert_eq!(nodes, (0..n).collect::<Vec<_>>());
            assert_eq!(cross_products(&graph, &tree), 0, "{n}");
            assert!((cost(&graph, &tree).unwrap() - found).abs() <= 1e-9 * found, "{n}");
        }
    }
    assert!(best_order(&graph(&[], &[])).is_none());
    assert_eq!(best_order(&graph(&[5.0], &[])).unwrap().0, JoinTree::Leaf(0));
}

#[test]
fn cross_products_come_last_and_only_where_needed() {
    // Two components and a lone relation: two cross products, whatever is cheap.
    for n in [5, EXACT_NODES + 3] {
        let mut rows = sizes(n, 3);
        rows[n - 1] = 1.0;
        let edges: Vec<_> = chain(n - 1).into_iter().filter(|edge| *edge != (1, 2)).collect();
        let graph = graph(&rows, &edges);
        let (tree, _) = best_order(&graph).unwrap();
        assert_eq!(cross_products(&graph, &tree), 2, "{tree:?}");
    }
    // A condition alone joins two relations by a nested loop, which is no cross product of the other components.
    let mut graph = graph(&[1000.0, 10.0, 20.0], &[(0, 1)]);
    graph = Graph::new(
        graph.nodes,
        graph.classes,
        vec![Condition { nodes: NodeSet(0b110), selectivity: 0.1 }],
        vec![],
    );
    let (tree, _) = best_order(&graph).unwrap();
    assert_eq!(leaves(&tree).len(), 3);
    assert!(graph.link(NodeSet(0b010), NodeSet(0b100)).is_some());
    assert!(graph.link(NodeSet(0b001), NodeSet(0b100)).is_none());
}

fn reducer(classes: &[usize], keeps: f64) -> Reducer {
    Reducer { classes: classes.to_vec(), needs: NodeSet::default(), keeps, builds_kept_side: false }
}

/// The smallest subtree that has a node, without the node.
fn joined_with(tree: &JoinTree, node: usize) -> Option<NodeSet> {
    let JoinTree::Join(a, b) = tree else { return None };
    match (&**a, &**b) {
        (JoinTree::Leaf(leaf), other) | (other, JoinTree::Leaf(leaf)) if *leaf == node => Some(other.nodes()),
        _ => joined_with(a, node).or_else(|| joined_with(b, node)),
    }
}

#[test]
fn reducers_apply_as_early_as_pays() {
    // A selective one at once, where its key first is; one that keeps nearly all after the rows have become few.
    let early = with_reducers(&[1e6, 1e5, 10.0], &[(0, 1), (1, 2)], vec![(100.0, reducer(&[0], 1e-4))]);
    let (tree, found) = best_order(&early).unwrap();
    assert!((found - brute_force(&early, early.all())).abs() < 1e-6 * found);
    let first = joined_with(&tree, 3).unwrap();
    // Before the largest relation, through the column that equals its key.
    assert!(!first.has(0), "{tree:?}");
    let late = with_reducers(&[1e6, 1e5, 10.0], &[(0, 1), (1, 2)], vec![(100.0, reducer(&[0], 0.99))]);
    let (tree, _) = best_order(&late).unwrap();
    assert!(joined_with(&tree, 3).unwrap().has(2), "{tree:?}");
    // The smaller side builds, also where there are several keys.
    let few = with_reducers(&[1e6, 10.0], &[(0, 1), (0, 1)], vec![(1e3, reducer(&[0, 1], 0.5))]);
    let many = with_reducers(&[1e3, 10.0], &[(0, 1), (0, 1)], vec![(1e6, reducer(&[0, 1], 0.5))]);
    let reduced = |graph: &Graph, builds: bool| {
        let (large, reducer) = (JoinTree::Leaf(0), JoinTree::Leaf(2));
        let pair = if builds { JoinTree::join(reducer, large) } else { JoinTree::join(large, reducer) };
        cost(graph, &pair).unwrap()
    };
    assert!(reduced(&few, true) < 0.6 * reduced(&few, false));
    assert!(reduced(&many, false) < 0.6 * reduced(&many, true));
    // What it needs must be there, and NOT IN builds the side that is kept.
    let mut needy = reducer(&[0], 1e-4);
    needy.needs = NodeSet(0b111);
    needy.builds_kept_side = true;
    let needy = with_reducers(&[1e6, 1e5, 10.0], &[(0, 1), (1, 2)], vec![(1.0, needy)]);
    let (tree, _) = best_order(&needy).unwrap();
    assert!(matches!(&tree, JoinTree::Join(_, probe) if **probe == JoinTree::Leaf(3)), "{tree:?}");
    // A reducer of a key that is nowhere has no order.
    let lost = with_reducers(
        &[10.0, 10.0],
        &[(0, 1)],
        vec![(1.0, Reducer { needs: NodeSet(1 << 9), ..reducer(&[0], 0.5) })],
    );
    assert!(best_order(&lost).is_none());
}

#[test]
fn rows_do_not_depend_on_the_order() {
    // One class of three relations: all distinct counts but the smallest divide.
    let nodes = [100.0, 1000.0, 50.0].map(|rows| GraphNode { rows, reducer: None }).to_vec();
    let class = Class { members: vec![(0, 100.0), (1, 10.0), (2, 50.0)], nodes: NodeSet(0b111) };
    let graph = Graph::new(nodes, vec![class], vec![], vec![]);
    assert_eq!(graph.rows(NodeSet(0b111)), 100.0 * 1000.0 * 50.0 / (100.0 * 50.0));
    assert_eq!(graph.rows(NodeSet(0b011)), 1000.0);
    assert_eq!(graph.rows(NodeSet(0b101)), 50.0);
}

/// Estimates of `SELECT * FROM t`'s columns, from a Parquet file.
async fn of_parquet(query: &str) -> Estimate {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let (context, path) = (SessionContext::new(), path.to_str().unwrap());
    context.sql(&format!("COPY ({query}) TO '{path}'")).await.unwrap().collect().await.unwrap();
    context.register_parquet("t", path, ParquetReadOptions::default()).await.unwrap();
    let plan = context.sql("SELECT * FROM t").await.unwrap().create_physical_plan().await.unwrap();
    let footers = Some(context.runtime_env().cache_manager.get_file_metadata_cache());
    estimate(&plan, &Estimator { footers }).unwrap()
}

#[tokio::test]
async fn distinct_values_come_from_ranges_and_dictionaries() {
    let query = "SELECT value % 7 AS few, value AS id, 'kind ' || (value % 5) AS kind, 'a type named ' || (value % 300) AS type, \
                 'text ' || value AS text, date '2020-01-01' + CAST(value % 400 AS INT) AS day, value * 1000 AS sparse, \
                 CASE WHEN value % 4 > 0 THEN value END AS gaps FROM generate_series(1, 20000) t(value)";
    let known = of_parquet(query).await;
    assert_eq!(known.rows, 20_000.0);
    // Texts that are much alike compress better than is assumed: an order of magnitude is what is promised.
    for (column, distinct, factor) in [
        (0, 7.0, 1.0),
        (1, 20_000.0, 1.0),
        (2, 5.0, 2.0),
        (3, 300.0, 12.0),
        (4, 20_000.0, 12.0),
        (5, 400.0, 1.0),
        (6, 20_000.0, 1.0),
    ] {
        let estimated = known.columns[column].distinct.unwrap();
        assert!(estimated <= distinct * factor && estimated * factor >= distinct, "{column}: {estimated}");
    }
    assert_eq!((known.columns[0].dense, known.columns[1].dense), (true, false));
    assert!((known.columns[7].nulls - 0.25).abs() < 1e-9);
}

#[tokio::test]
async fn predicates_keep_what_ranges_and_counts_say() {
    let known = of_parquet("SELECT value AS id, value % 10 AS digit, 'k' || (value % 4) AS kind FROM generate_series(0, 9999) t(value)").await;
    let context = SessionContext::new();
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("digit", DataType::Int64, true),
        Field::new("kind", DataType::Utf8, true),
    ]);
    let schema = schema.to_dfschema().unwrap();
    for (predicate, rows, factor) in [
        ("id < 2500", 2500.0, 1.01),
        ("id >= 2500 AND id < 5000", 2500.0, 1.01),
        ("2500 > id", 2500.0, 1.01),
        ("id > 20000", 1.0, 1.0),
        ("id = 7", 1.0, 1.01),
        ("digit = 7", 1000.0, 1.01),
        ("digit <> 7", 9000.0, 1.01),
        ("digit = 7 OR digit = 8", 2000.0, 1.01),
        ("digit IN (1, 2, 3)", 3000.0, 1.01),
        ("digit NOT IN (1, 2, 3)", 7000.0, 1.01),
        ("kind = 'k1'", 2500.0, 2.0),
        ("id < 5000 AND digit = 1", 500.0, 1.01),
        ("id < 5000 OR digit = 1", 5500.0, 1.01),
        ("NOT (id < 2500)", 7500.0, 1.01),
        ("id IS NULL", 1.0, 1.01),
        ("id IS NOT NULL", 10_000.0, 1.01),
        ("true", 10_000.0, 1.01),
    ] {
        let expr = context.parse_sql_expr(predicate, &schema).unwrap();
        let expr = context.create_physical_expr(expr, &schema).unwrap();
        let kept = filtered(known.clone(), &expr).rows;
        assert!(kept <= rows * factor && kept * factor >= rows, "{predicate}: {kept}, not {rows}");
    }
}

#[tokio::test]
async fn of_keys_as_many_stay_as_may_match() {
    let known =
        of_parquet("SELECT value AS id, value % 100 AS other FROM generate_series(0, 9999) t(value)").await;
    let near = within(known.clone(), 0, (1000.0, 1999.0));
    assert!((near.rows - 1000.0).abs() < 1.0 && (near.columns[0].distinct.unwrap() - 1000.0).abs() < 1.0);
    assert_eq!(near.columns[0].range, Some((1000.0, 1999.0)));
    // What a filter leaves is among these, if it is no more.
    for (left, expected) in [(365.0, 365.0), (5000.0, 1000.0)] {
        let rows = within(known.clone().at_most(left), 0, (1000.0, 1999.0)).rows;
        assert!((rows - expected).abs() < 1.0, "{left}: {rows}");
    }
    // All of them, and a column that is no key.
    assert_eq!(within(known.clone(), 0, (-5.0, 20_000.0)).rows, 10_000.0);
    assert_eq!(within(known, 1, (0.0, 9.0)).rows, 10_000.0);
}
