//! An order of joins as DataFusion's operators.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinSide, JoinType, NullEquality, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::{collect_columns, conjunction};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;

use super::enumerate::JoinTree;
use super::flatten::{FilterColumn, Flat, Item, ReducerItem, replace_columns};
use super::graph::{Graph, NodeSet};

type Node = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;

/// Makes operators of an order.
pub(crate) struct Rebuild<'a> {
    pub flat: &'a Flat,
    pub graph: &'a Graph,
    /// The class of each column; every key has one.
    pub class_of: &'a [Option<usize>],
    /// Columns that the plan must give.
    pub outputs: &'a [usize],
    pub config: &'a ConfigOptions,
}

/// A plan, and what its columns are.
struct Built {
    plan: Node,
    columns: Vec<usize>,
    nodes: NodeSet,
}

impl Built {
    fn position(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|c| *c == column)
    }
}

/// Never seen unless a column that is needed was dropped.
pub(crate) fn lost() -> datafusion::error::DataFusionError {
    internal_datafusion_err!("join order: a column is not where it is needed")
}

fn column_at(schema: &Schema, index: usize) -> PhysicalExprRef {
    Arc::new(Column::new(schema.field(index).name(), index))
}

impl Rebuild<'_> {
    /// The plan of an order, with the columns of a schema.
    pub fn plan(&self, tree: &JoinTree, schema: &SchemaRef) -> Result<Node> {
        let built = self.build(tree, true)?;
        let inner = built.plan.schema();
        let mut exprs = Vec::with_capacity(self.outputs.len());
        for (output, field) in self.outputs.iter().zip(schema.fields()) {
            let expr = column_at(&inner, built.position(*output).ok_or_else(lost)?);
            exprs.push(ProjectionExpr { expr, alias: field.name().clone() });
        }
        let projection = ProjectionExec::try_new_with_schema_metadata(exprs, built.plan, schema)?;
        Ok(Arc::new(projection))
    }

    fn build(&self, tree: &JoinTree, root: bool) -> Result<Built> {
        let built = match tree {
            JoinTree::Leaf(node) => self.leaf(*node)?,
            JoinTree::Join(build, probe) => {
                let (build, probe) = (self.build(build, false)?, self.build(probe, false)?);
                match (self.reducer(build.nodes), self.reducer(probe.nodes)) {
                    (Some(reducer), _) => self.reduce(probe, build, reducer, false)?,
                    (_, Some(reducer)) => self.reduce(build, probe, reducer, true)?,
                    (None, None) => self.join(build, probe)?,
                }
            }
        };
        if root { Ok(built) } else { self.narrowed(built) }
    }

    fn reducer(&self, nodes: NodeSet) -> Option<&ReducerItem> {
        match self.flat.items.get(nodes.only()?)? {
            Item::Reducer(reducer) => Some(reducer),
            Item::Relation { .. } => None,
        }
    }

    fn leaf(&self, node: usize) -> Result<Built> {
        let nodes = NodeSet::of(node);
        let (plan, first) = match &self.flat.items[node] {
            Item::Relation { plan, first } => (plan, *first),
            Item::Reducer(reducer) => {
                return Ok(Built { plan: Arc::clone(&reducer.plan), columns: Vec::new(), nodes });
            }
        };
        let width = plan.schema().fields().len();
        let built = Built { plan: Arc::clone(plan), columns: (first..first + width).collect(), nodes };
        let mut filters = self.predicates(nodes, &[]);
        filters.extend(self.equal_within(&built));
        self.filtered(built, filters)
    }

    /// Members of one class in one relation: joins use one of them, so the relation compares them.
    fn equal_within(&self, built: &Built) -> Vec<Expr> {
        let mut filters: Vec<Expr> = Vec::new();
        for (i, column) in built.columns.iter().enumerate() {
            let Some(class) = self.class_of[*column] else { continue };
            let earlier = built.columns[..i].iter().find(|c| self.class_of[**c] == Some(class));
            if let Some(earlier) = earlier {
                let side = |column: usize| Arc::new(Column::new("", column)) as Expr;
                filters.push(Arc::new(BinaryExpr::new(side(*earlier), Operator::Eq, side(*column))));
            }
        }
        filters
    }

    /// Predicates that can be applied on some nodes, but on none of the parts.
    fn predicates(&self, nodes: NodeSet, parts: &[NodeSet]) -> Vec<Expr> {
        let applies = |p: &&super::flatten::Predicate| {
            p.nodes.within(nodes) && !parts.iter().any(|part| p.nodes.within(*part))
        };
        self.flat.predicates.iter().filter(applies).map(|p| Arc::clone(&p.expr)).collect()
    }

    fn filtered(&self, built: Built, filters: Vec<Expr>) -> Result<Built> {
        if filters.is_empty() {
            return Ok(built);
        }
        let schema = built.plan.schema();
        let replace = |column: &Column| {
            let index = built.position(column.index())?;
            Some(Column::new(schema.field(index).name(), index))
        };
        let predicate = replace_columns(&conjunction(filters), &replace).ok_or_else(lost)?;
        let plan = Arc::new(FilterExec::try_new(predicate, Arc::clone(&built.plan))?);
        Ok(Built { plan, ..built })
    }

    fn join(&self, build: Built, probe: Built) -> Result<Built> {
        let (left, right) = (build.plan.schema(), probe.plan.schema());
        let mut on = Vec::new();
        for (class, members) in self.graph.classes.iter().enumerate() {
            if !(members.nodes.meets(build.nodes) && members.nodes.meets(probe.nodes)) {
                continue;
            }
            let key = |side: &Built| {
                side.columns.iter().position(|c| self.class_of[*c] == Some(class)).ok_or_else(lost)
            };
            on.push((column_at(&left, key(&build)?), column_at(&right, key(&probe)?)));
        }
        let nodes = build.nodes.union(probe.nodes);
        let filters = self.predicates(nodes, &[build.nodes, probe.nodes]);
        let filter = match filters.is_empty() {
            true => None,
            false => Some(join_filter(&conjunction(filters), &build, &probe)?),
        };
        let columns = [build.columns.as_slice(), probe.columns.as_slice()].concat();
        let mode = self.mode(build.nodes);
        let (left, right) = (build.plan, probe.plan);
        let plan: Node = match (on.is_empty(), filter) {
            (false, filter) => Arc::new(HashJoinExec::try_new(
                left,
                right,
                on,
                filter,
                &JoinType::Inner,
                None,
                mode,
                NullEquality::NullEqualsNothing,
                false,
            )?),
            (true, Some(filter)) => {
                Arc::new(NestedLoopJoinExec::try_new(left, right, Some(filter), &JoinType::Inner, None)?)
            }
            (true, None) => Arc::new(CrossJoinExec::new(left, right)),
        };
        Ok(Built { plan, columns, nodes })
    }

    fn reduce(&self, kept: Built, other: Built, reducer: &ReducerItem, kept_builds: bool) -> Result<Built> {
        let schema = kept.plan.schema();
        let mut on = Vec::new();
        for (column, inner) in &reducer.keys {
            let class = self.class_of[*column];
            let same = |c: &usize| c == column || (class.is_some() && self.class_of[*c] == class);
            let key = column_at(&schema, kept.columns.iter().position(same).ok_or_else(lost)?);
            on.push(if kept_builds { (key, Arc::clone(inner)) } else { (Arc::clone(inner), key) });
        }
        let filter = match &reducer.filter {
            Some(filter) => {
                let indices = filter_indices(&filter.columns, &kept, kept_builds)?;
                Some(JoinFilter::new(Arc::clone(&filter.expression), indices, Arc::clone(&filter.schema)))
            }
            None => None,
        };
        let join_type = match (kept_builds, reducer.anti) {
            (true, false) => JoinType::LeftSemi,
            (true, true) => JoinType::LeftAnti,
            (false, false) => JoinType::RightSemi,
            (false, true) => JoinType::RightAnti,
        };
        let mode = match (reducer.null_aware, kept_builds) {
            (true, _) => PartitionMode::CollectLeft,
            (false, true) => self.mode(kept.nodes),
            (false, false) => self.mode(other.nodes),
        };
        let (left, right) = match kept_builds {
            true => (Arc::clone(&kept.plan), other.plan),
            false => (other.plan, Arc::clone(&kept.plan)),
        };
        let (equality, null_aware) = (reducer.null_equality, reducer.null_aware);
        let plan =
            HashJoinExec::try_new(left, right, on, filter, &join_type, None, mode, equality, null_aware)?;
        let plan = Arc::new(plan);
        let nodes = kept.nodes.union(other.nodes);
        let filters = self.predicates(nodes, &[kept.nodes]);
        self.filtered(Built { plan, columns: kept.columns, nodes }, filters)
    }

    /// As DataFusion decides: one build side for all where it is small or there is one partition anyway.
    fn mode(&self, build: NodeSet) -> PartitionMode {
        let options = &self.config.optimizer;
        let most = options.hash_join_single_partition_threshold_rows as f64;
        let spread = self.config.execution.target_partitions > 1 && options.repartition_joins;
        match spread && self.graph.input_rows(build) > most {
            true => PartitionMode::Partitioned,
            false => PartitionMode::CollectLeft,
        }
    }

    /// Without the columns that nothing above reads.
    fn narrowed(&self, built: Built) -> Result<Built> {
        let mut keep: Vec<usize> = (0..built.columns.len()).filter(|i| self.is_needed(&built, *i)).collect();
        if keep.is_empty() && !built.columns.is_empty() {
            keep.push(0);
        }
        if keep.len() == built.columns.len() || self.reducer(built.nodes).is_some() {
            return Ok(built);
        }
        let schema = built.plan.schema();
        let expr = |i: &usize| ProjectionExpr {
            expr: column_at(&schema, *i),
            alias: schema.field(*i).name().clone(),
        };
        let exprs: Vec<ProjectionExpr> = keep.iter().map(expr).collect();
        let plan = Arc::new(ProjectionExec::try_new(exprs, Arc::clone(&built.plan))?);
        Ok(Built { plan, columns: keep.iter().map(|i| built.columns[*i]).collect(), nodes: built.nodes })
    }

    fn is_needed(&self, built: &Built, index: usize) -> bool {
        let (column, nodes) = (built.columns[index], built.nodes);
        let outside = self.graph.all().without(nodes);
        let read = |expr: &Expr| collect_columns(expr).iter().any(|c| c.index() == column);
        let reducers: Vec<_> = outside.iter().filter_map(|node| self.reducer(NodeSet::of(node))).collect();
        let residual = |reducer: &ReducerItem| {
            let mut columns = reducer.filter.iter().flat_map(|filter| &filter.columns);
            columns.any(|c| matches!(c, FilterColumn::Kept(c) if *c == column))
        };
        if self.outputs.contains(&column)
            || self.flat.predicates.iter().any(|p| !p.nodes.within(nodes) && read(&p.expr))
            || reducers.iter().any(|r| residual(r))
        {
            return true;
        }
        // One member of a class is enough for the joins above.
        let Some(class) = self.class_of[column] else { return false };
        let keyed =
            |reducer: &ReducerItem| reducer.keys.iter().any(|(key, _)| self.class_of[*key] == Some(class));
        let joined = self.graph.classes[class].nodes.meets(outside) || reducers.iter().any(|r| keyed(r));
        joined && built.columns[..index].iter().all(|c| self.class_of[*c] != Some(class))
    }
}

fn filter_indices(columns: &[FilterColumn], kept: &Built, kept_builds: bool) -> Result<Vec<ColumnIndex>> {
    let (kept_side, other_side) = match kept_builds {
        true => (JoinSide::Left, JoinSide::Right),
        false => (JoinSide::Right, JoinSide::Left),
    };
    let index = |column: &FilterColumn| match column {
        FilterColumn::Kept(column) => {
            Ok(ColumnIndex { index: kept.position(*column).ok_or_else(lost)?, side: kept_side })
        }
        FilterColumn::Reducer(index) => Ok(ColumnIndex { index: *index, side: other_side }),
    };
    columns.iter().map(index).collect()
}

fn join_filter(expr: &Expr, build: &Built, probe: &Built) -> Result<JoinFilter> {
    let mut columns: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
    columns.sort_unstable();
    let (left, right) = (build.plan.schema(), probe.plan.schema());
    let (mut indices, mut fields) = (Vec::new(), Vec::new());
    for column in &columns {
        let (index, side, schema) = match (build.position(*column), probe.position(*column)) {
            (Some(index), _) => (index, JoinSide::Left, &left),
            (None, Some(index)) => (index, JoinSide::Right, &right),
            (None, None) => return Err(lost()),
        };
        indices.push(ColumnIndex { index, side });
        fields.push(schema.field(index).clone());
    }
    let replace = |column: &Column| {
        let index = columns.binary_search(&column.index()).ok()?;
        Some(Column::new(fields[index].name(), index))
    };
    let expr = replace_columns(expr, &replace).ok_or_else(lost)?;
    Ok(JoinFilter::new(expr, indices, Arc::new(Schema::new(fields))))
}
