//! The query graph: what the enumeration knows of a tree of joins. Pure numbers, no plan.
//!
//! A *relation* is any plan without inner joins of its own. A *reducer* is the other side of a semi or anti join: it
//! keeps or drops rows of the relations that hold its keys, so it may be applied wherever they are. Equalities form
//! *classes* of columns that are equal in every row of the answer (`a = b AND b = c` is one class of three): any member
//! can stand for any other, and two sets of relations are joined by every class that has members in both.

/// A set of nodes of a graph, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct NodeSet(pub u64);

impl NodeSet {
    /// The most nodes that a graph can have.
    pub const CAPACITY: usize = 64;

    /// A set of one node.
    pub fn of(node: usize) -> NodeSet {
        NodeSet(1 << node)
    }

    /// The first `n` nodes.
    pub fn first(n: usize) -> NodeSet {
        NodeSet(if n >= 64 { u64::MAX } else { (1 << n) - 1 })
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn has(self, node: usize) -> bool {
        self.0 & (1 << node) != 0
    }

    pub fn union(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    pub fn intersect(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & other.0)
    }

    pub fn without(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & !other.0)
    }

    pub fn meets(self, other: NodeSet) -> bool {
        self.0 & other.0 != 0
    }

    pub fn within(self, other: NodeSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// The node of a set of one.
    pub fn only(self) -> Option<usize> {
        (self.0.count_ones() == 1).then(|| self.0.trailing_zeros() as usize)
    }

    /// The nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let node = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(node)
        })
    }
}

/// A relation or a reducer.
#[derive(Debug, Clone)]
pub(crate) struct GraphNode {
    /// Estimated rows.
    pub rows: f64,
    /// Set for reducers.
    pub reducer: Option<Reducer>,
}

/// The other side of a semi or anti join.
#[derive(Debug, Clone)]
pub(crate) struct Reducer {
    /// Its keys: a member of each must be there.
    pub classes: Vec<usize>,
    /// Nodes that must be there for its residual condition.
    pub needs: NodeSet,
    /// Share of the rows that stay.
    pub keeps: f64,
    /// `NOT IN`: only the side that is kept can be built.
    pub builds_kept_side: bool,
}

/// Columns that are equal in every row of the answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Class {
    /// Relations, and how many distinct values they have.
    pub members: Vec<(usize, f64)>,
    /// The relations.
    pub nodes: NodeSet,
}

/// A condition other than an equality of columns, over several nodes.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    /// Nodes that must be there.
    pub nodes: NodeSet,
    /// Share of the rows that stay.
    pub selectivity: f64,
}

/// Two relations whose keys of several classes depend on each other.
#[derive(Debug, Clone)]
pub(crate) struct Correlation {
    /// The relations.
    pub pair: (usize, usize),
    /// By how much more pairs match than if the classes were independent.
    pub factor: f64,
}

/// How two sets of nodes can be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// By so many classes, at least one.
    Equal(usize),
    /// Every pair of rows is a candidate.
    Pairs,
    /// The second set is a reducer.
    Reduce(usize),
}

/// Build rows cost this much more than probe rows: they are materialised and written in random order.
const BUILD_WEIGHT: f64 = 2.0;
/// Probe rows with several keys cost this much more than those with one, which is mostly an index into a table.
const KEYS_WEIGHT: f64 = 2.0;
/// A pair that a nested loop looks at.
const PAIR_WEIGHT: f64 = 0.5;

/// A tree of joins as a graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub nodes: Vec<GraphNode>,
    pub classes: Vec<Class>,
    pub conditions: Vec<Condition>,
    pub correlations: Vec<Correlation>,
    relations: NodeSet,
    components: Vec<NodeSet>,
}

impl Graph {
    /// A graph of at most [`NodeSet::CAPACITY`] nodes.
    pub fn new(
        nodes: Vec<GraphNode>,
        classes: Vec<Class>,
        conditions: Vec<Condition>,
        correlations: Vec<Correlation>,
    ) -> Graph {
        let relations = (0..nodes.len()).filter(|i| nodes[*i].reducer.is_none()).map(NodeSet::of);
        let relations = relations.fold(NodeSet::default(), NodeSet::union);
        let mut graph = Graph { nodes, classes, conditions, correlations, relations, components: Vec::new() };
        graph.components = graph.connected();
        graph
    }

    /// All nodes.
    pub fn all(&self) -> NodeSet {
        NodeSet::first(self.nodes.len())
    }

    fn reducer(&self, set: NodeSet) -> Option<(usize, &Reducer)> {
        let node = set.only()?;
        self.nodes.get(node)?.reducer.as_ref().map(|reducer| (node, reducer))
    }

    /// Maximal sets of relations that classes and conditions hold together.
    fn connected(&self) -> Vec<NodeSet> {
        let mut sets: Vec<NodeSet> = self.relations.iter().map(NodeSet::of).collect();
        let conditions = self.conditions.iter().map(|c| c.nodes.intersect(self.relations));
        for edge in self.classes.iter().map(|c| c.nodes).chain(conditions) {
            let (touched, mut rest): (Vec<_>, Vec<_>) = sets.into_iter().partition(|set| set.meets(edge));
            let merged = touched.into_iter().fold(NodeSet::default(), NodeSet::union);
            rest.extend((!merged.is_empty()).then_some(merged));
            sets = rest;
        }
        sets
    }

    /// How two disjoint sets, each with a plan, can be joined; `Reduce` only where the *second* is the reducer.
    pub fn link(&self, a: NodeSet, b: NodeSet) -> Option<Link> {
        if self.reducer(a).is_some() {
            return None;
        }
        if let Some((node, reducer)) = self.reducer(b) {
            let keys = reducer.classes.iter().all(|class| self.classes[*class].nodes.meets(a));
            return (keys && reducer.needs.within(a)).then_some(Link::Reduce(node));
        }
        let shared = |class: &&Class| class.nodes.meets(a) && class.nodes.meets(b);
        let keys = self.classes.iter().filter(shared).count();
        if keys > 0 {
            return Some(Link::Equal(keys));
        }
        let both = a.union(b);
        let condition = |c: &Condition| c.nodes.within(both) && c.nodes.meets(a) && c.nodes.meets(b);
        if self.conditions.iter().any(condition) {
            return Some(Link::Pairs);
        }
        // A cross product is never better than a join, so it waits until nothing else is left to join.
        let whole = |set: NodeSet| self.components.iter().all(|c| c.within(set) || !c.meets(set));
        (whole(a) && whole(b)).then_some(Link::Pairs)
    }

    /// Estimated rows of a joined set. Depends on the set alone, so every order agrees (Selinger et al., 1979; of the
    /// members of a class, all distinct counts but the smallest divide).
    pub fn rows(&self, set: NodeSet) -> f64 {
        let mut rows: f64 = 1.0;
        for node in set.iter() {
            rows *= match &self.nodes[node].reducer {
                Some(reducer) => reducer.keeps,
                None => self.nodes[node].rows,
            };
        }
        for class in self.classes.iter().filter(|class| class.nodes.meets(set)) {
            let (mut smallest, mut product) = (f64::INFINITY, 1.0);
            for (_, distinct) in class.members.iter().filter(|(node, _)| set.has(*node)) {
                smallest = distinct.min(smallest);
                product *= distinct;
            }
            rows *= smallest / product;
        }
        for condition in self.conditions.iter().filter(|c| c.nodes.within(set)) {
            rows *= condition.selectivity;
        }
        (rows * self.correlation(set)).max(1.0)
    }

    /// Correlated pairs form a forest at most: a third relation adds one dependency, not two.
    fn correlation(&self, set: NodeSet) -> f64 {
        let mut factor = 1.0;
        let mut trees: Vec<NodeSet> = Vec::new();
        for Correlation { pair: (a, b), factor: f } in &self.correlations {
            let pair = NodeSet::of(*a).union(NodeSet::of(*b));
            if !pair.within(set) || trees.iter().any(|tree| pair.within(*tree)) {
                continue;
            }
            factor *= f;
            let (touched, mut rest): (Vec<_>, Vec<_>) = trees.into_iter().partition(|tree| tree.meets(pair));
            rest.push(touched.into_iter().fold(pair, NodeSet::union));
            trees = rest;
        }
        factor
    }

    /// Rows that a set has as an input: a reducer's are its own.
    pub fn input_rows(&self, set: NodeSet) -> f64 {
        match set.only() {
            Some(node) => self.nodes[node].rows.max(1.0),
            None => self.rows(set),
        }
    }

    /// The cost of one join, in probed rows: build rows and probe rows (both weighted), and output rows.
    pub fn join_cost(&self, link: Link, build_rows: f64, probe_rows: f64, rows: f64) -> f64 {
        let keys = match link {
            Link::Pairs => return (BUILD_WEIGHT + PAIR_WEIGHT * probe_rows) * build_rows + probe_rows + rows,
            Link::Equal(keys) => keys,
            Link::Reduce(node) => self.nodes[node].reducer.as_ref().map_or(1, |r| r.classes.len()),
        };
        let probe_weight = if keys > 1 { KEYS_WEIGHT } else { 1.0 };
        // Of a reducer either side may build, and both then hash their keys: without the weight on both, many rows with
        // several keys would be built to spare as many probes.
        let build_weight = match link {
            Link::Reduce(_) => BUILD_WEIGHT * probe_weight,
            Link::Equal(_) | Link::Pairs => BUILD_WEIGHT,
        };
        build_weight * build_rows + probe_weight * probe_rows + rows
    }

    /// Whether the first set of a link may be the probe side.
    pub fn may_probe(&self, link: Link) -> bool {
        match link {
            Link::Reduce(node) => {
                !self.nodes[node].reducer.as_ref().is_some_and(|reducer| reducer.builds_kept_side)
            }
            Link::Equal(_) | Link::Pairs => true,
        }
    }
}
