//! The cheapest order of joins: exact over connected subsets up to [`EXACT_NODES`], greedy beyond.
//!
//! Exact: dynamic programming over subsets in the order of their numbers (DPsub, Moerkotte and Neumann, VLDB 2006): every
//! set of nodes keeps its cheapest plan, made of two disjoint sets that have plans and can be joined. Bushy plans are
//! allowed. Reducers are nodes too, which join only where their keys are, so that *when* they apply is decided by cost.
//! Greedy: operator ordering by the smallest result (GOO, Fegaras 1998).

use super::graph::{Graph, NodeSet};

/// Up to here every connected order is looked at.
pub(crate) const EXACT_NODES: usize = 12;

/// An order of joins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JoinTree {
    /// A node of the graph.
    Leaf(usize),
    /// The build side and the probe side.
    Join(Box<JoinTree>, Box<JoinTree>),
}

impl JoinTree {
    /// A join of two trees.
    pub fn join(build: JoinTree, probe: JoinTree) -> JoinTree {
        JoinTree::Join(Box::new(build), Box::new(probe))
    }

    /// Its nodes.
    pub fn nodes(&self) -> NodeSet {
        match self {
            JoinTree::Leaf(node) => NodeSet::of(*node),
            JoinTree::Join(build, probe) => build.nodes().union(probe.nodes()),
        }
    }
}

/// The cheapest plan of a set.
#[derive(Debug, Clone, Copy)]
struct Best {
    cost: f64,
    rows: f64,
    build: NodeSet,
    probe: NodeSet,
}

/// The cheapest order and its cost; `None` where the graph has none (a reducer without its keys).
pub(crate) fn best_order(graph: &Graph) -> Option<(JoinTree, f64)> {
    match graph.nodes.len() {
        0 => None,
        1..=EXACT_NODES => exact(graph),
        n if n <= NodeSet::CAPACITY => greedy(graph),
        _ => None,
    }
}

/// What an order costs; `None` where a join of it is none that the graph has.
pub(crate) fn cost(graph: &Graph, tree: &JoinTree) -> Option<f64> {
    match tree {
        JoinTree::Leaf(_) => Some(0.0),
        JoinTree::Join(build, probe) => {
            let (below_build, below_probe) = (cost(graph, build)?, cost(graph, probe)?);
            let (a, b) = (build.nodes(), probe.nodes());
            let link = graph.link(a, b).or_else(|| graph.link(b, a))?;
            let (build_rows, probe_rows) = (graph.input_rows(a), graph.input_rows(b));
            let join = graph.join_cost(link, build_rows, probe_rows, graph.rows(a.union(b)));
            Some(below_build + below_probe + join)
        }
    }
}

/// The cheaper of both ways to join two sets.
fn joined(
    graph: &Graph,
    (a, best_a): (NodeSet, &Best),
    (b, best_b): (NodeSet, &Best),
    rows: &mut Option<f64>,
) -> Option<Best> {
    let (link, a, best_a, b, best_b) = match graph.link(a, b) {
        Some(link) => (link, a, best_a, b, best_b),
        None => (graph.link(b, a)?, b, best_b, a, best_a),
    };
    let rows = *rows.get_or_insert_with(|| graph.rows(a.union(b)));
    let below = best_a.cost + best_b.cost;
    let a_builds = below + graph.join_cost(link, best_a.rows, best_b.rows, rows);
    let b_builds = below + graph.join_cost(link, best_b.rows, best_a.rows, rows);
    Some(match graph.may_probe(link) && b_builds < a_builds {
        true => Best { cost: b_builds, rows, build: b, probe: a },
        false => Best { cost: a_builds, rows, build: a, probe: b },
    })
}

fn leaf(graph: &Graph, node: usize) -> Best {
    let set = NodeSet::of(node);
    Best { cost: 0.0, rows: graph.input_rows(set), build: set, probe: set }
}

fn exact(graph: &Graph) -> Option<(JoinTree, f64)> {
    let all = graph.all();
    let mut plans: Vec<Option<Best>> = vec![None; all.0 as usize + 1];
    for set in 1..=all.0 {
        let set = NodeSet(set);
        if let Some(node) = set.only() {
            plans[set.0 as usize] = Some(leaf(graph, node));
            continue;
        }
        let (mut best, mut rows): (Option<Best>, _) = (None, None);
        // Subsets without the set's highest node: each split is seen once.
        let others = set.0 & !(1 << (63 - set.0.leading_zeros()));
        let mut part = others;
        while part != 0 {
            let (a, b) = (NodeSet(part), set.without(NodeSet(part)));
            if let (Some(best_a), Some(best_b)) = (&plans[a.0 as usize], &plans[b.0 as usize])
                && best.is_none_or(|best| best_a.cost + best_b.cost < best.cost)
                && let Some(plan) = joined(graph, (a, best_a), (b, best_b), &mut rows)
                && best.is_none_or(|best| plan.cost < best.cost)
            {
                best = Some(plan);
            }
            part = (part - 1) & others;
        }
        plans[set.0 as usize] = best;
    }
    let cost = plans[all.0 as usize].as_ref()?.cost;
    Some((tree(&plans, all)?, cost))
}

fn tree(plans: &[Option<Best>], set: NodeSet) -> Option<JoinTree> {
    if let Some(node) = set.only() {
        return Some(JoinTree::Leaf(node));
    }
    let best = plans[set.0 as usize].as_ref()?;
    Some(JoinTree::join(tree(plans, best.build)?, tree(plans, best.probe)?))
}

fn greedy(graph: &Graph) -> Option<(JoinTree, f64)> {
    let mut forest: Vec<(NodeSet, Best, JoinTree)> = (0..graph.nodes.len())
        .map(|node| (NodeSet::of(node), leaf(graph, node), JoinTree::Leaf(node)))
        .collect();
    while forest.len() > 1 {
        let mut chosen: Option<(usize, usize, Best)> = None;
        for i in 0..forest.len() {
            for j in i + 1..forest.len() {
                let ((a, best_a, _), (b, best_b, _)) = (&forest[i], &forest[j]);
                let Some(plan) = joined(graph, (*a, best_a), (*b, best_b), &mut None) else { continue };
                let key = |plan: &Best| (plan.rows, plan.cost);
                if chosen.as_ref().is_none_or(|(_, _, old)| key(&plan) < key(old)) {
                    chosen = Some((i, j, plan));
                }
            }
        }
        let (i, j, best) = chosen?;
        let (b, a) = (forest.swap_remove(j), forest.swap_remove(i));
        let tree = match best.build == a.0 {
            true => JoinTree::join(a.2, b.2),
            false => JoinTree::join(b.2, a.2),
        };
        forest.push((a.0.union(b.0), best, tree));
    }
    let (_, best, tree) = forest.pop()?;
    Some((tree, best.cost))
}
