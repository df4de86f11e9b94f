//! Kelpie's own small physical algebra: what the compiler takes.

mod ranked;
mod sets;
pub mod text;
pub mod unify;
mod window;

pub use self::ranked::{Rank, Ranked, RankedValue};
pub use self::sets::{GroupingSet, GroupingSets};
pub use self::window::{Frame, FrameBound, FrameUnits, Window, WindowCall, WindowFunction};
use crate::expr::{Expr, ExprKind, children, substitute};
use crate::types::{DataType, Field, Literal};

/// A relational plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Some columns of a table.
    Scan(Scan),
    /// The rows where the predicate is true (not false, not NULL).
    Filter {
        /// Its rows.
        input: Box<Plan>,
        /// Boolean.
        predicate: Expr,
    },
    /// One column an expression.
    Project {
        /// Its rows.
        input: Box<Plan>,
        /// Expressions over the input's columns.
        exprs: Vec<Expr>,
        /// Names of the columns, one an expression.
        names: Vec<String>,
    },
    /// Groups and aggregates: the keys' columns, then the aggregates'. Without keys: exactly one row.
    Aggregate {
        /// Its rows.
        input: Box<Plan>,
        /// Keys; NULL is a key like any other.
        keys: Vec<Expr>,
        /// Aggregates.
        aggregates: Vec<Aggregate>,
        /// Names of the keys' columns.
        names: Vec<String>,
    },
    /// Groups by several sets of keys.
    GroupingSets(Box<GroupingSets>),
    /// Groups, aggregates, and values at ranks of the groups' sorted rows.
    Ranked(Box<Ranked>),
    /// Two inputs joined.
    Join(Box<Join>),
    /// The rows of all inputs (UNION ALL), in no order. The inputs' columns agree in type.
    Union {
        /// At least one.
        inputs: Vec<Plan>,
        /// The columns.
        fields: Vec<Field>,
    },
    /// `input`, in which `ExprKind::Scalar(i)` stands for the only value of `subqueries[i]` (NULL where that has no row; an
    /// error where it has several).
    Scalars {
        /// Its rows.
        input: Box<Plan>,
        /// Each has one column.
        subqueries: Vec<Plan>,
    },
    /// Sorted, and cut to `fetch` rows where given.
    Sort {
        /// Its rows.
        input: Box<Plan>,
        /// Most significant first.
        keys: Vec<SortKey>,
        /// At most this many rows.
        fetch: Option<usize>,
    },
    /// Rows `skip..skip + fetch`.
    Limit {
        /// Its rows.
        input: Box<Plan>,
        /// Rows left out.
        skip: usize,
        /// Rows kept; all where absent.
        fetch: Option<usize>,
    },
    /// Rows with values over others of their partition.
    Window(Box<Window>),
}

/// A scan: columns of the table that the engine knows under `source`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scan {
    /// Position in the engine's list of sources.
    pub source: usize,
    /// Name, for people.
    pub table: String,
    /// Position in the source of each column.
    pub columns: Vec<usize>,
    /// The columns.
    pub fields: Vec<Field>,
}

/// A join. The build side is materialised and indexed first; the probe side streams past it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Join {
    /// The side that is indexed (DataFusion's left).
    pub build: Plan,
    /// The side that streams (DataFusion's right).
    pub probe: Plan,
    /// Which rows come out.
    pub kind: JoinKind,
    /// Pairs that must be equal: an expression over the build side's columns, and one over the probe side's, of one
    /// type. Empty: every pair of rows is a candidate.
    pub keys: Vec<(Expr, Expr)>,
    /// Over the build side's columns followed by the probe side's: a pair matches only where this is true too.
    pub residual: Option<Expr>,
    /// NULL keys are equal to each other (set operations), rather than to nothing.
    pub null_equal: bool,
    /// `NOT IN`: a `BuildAnti` or `ProbeAnti` that lets no row pass once the other side has a NULL key, and no row with a NULL key unless
    /// the other side is empty.
    pub null_aware: bool,
}

/// The kinds of joins, by the side that they keep. The columns are the build side's followed by the probe side's,
/// except where said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// And build rows without a match, with NULLs (SQL's LEFT where the build side is left).
    BuildOuter,
    /// And probe rows without a match, with NULLs.
    ProbeOuter,
    /// And both.
    FullOuter,
    /// Build rows with a match; only the build side's columns.
    BuildSemi,
    /// Build rows without a match; only the build side's columns.
    BuildAnti,
    /// Every build row, and a boolean column that tells whether it has a match.
    BuildMark,
    /// Probe rows with a match; only the probe side's columns.
    ProbeSemi,
    /// Probe rows without a match; only the probe side's columns.
    ProbeAnti,
    /// Every probe row, and a boolean column that tells whether it has a match.
    ProbeMark,
}

impl JoinKind {
    /// Every kind.
    pub const ALL: [JoinKind; 10] = {
        use JoinKind::*;
        [
            Inner, BuildOuter, ProbeOuter, FullOuter, BuildSemi, BuildAnti, BuildMark, ProbeSemi, ProbeAnti,
            ProbeMark,
        ]
    };
}

impl Join {
    /// The columns of the result.
    pub fn fields(&self) -> Vec<Field> {
        use JoinKind::*;
        let side = |plan: &Plan, nullable: bool| -> Vec<Field> {
            let widen = |field: Field| Field { nullable: field.nullable || nullable, ..field };
            plan.fields().into_iter().map(widen).collect()
        };
        let mut fields = match self.kind {
            Inner | BuildOuter | ProbeOuter | FullOuter => {
                let mut fields = side(&self.build, matches!(self.kind, ProbeOuter | FullOuter));
                fields.extend(side(&self.probe, matches!(self.kind, BuildOuter | FullOuter)));
                fields
            }
            BuildSemi | BuildAnti | BuildMark => self.build.fields(),
            ProbeSemi | ProbeAnti | ProbeMark => self.probe.fields(),
        };
        if matches!(self.kind, BuildMark | ProbeMark) {
            fields.push(Field { name: "mark".into(), data_type: DataType::Boolean, nullable: false });
        }
        fields
    }
}

/// An aggregate over the rows of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregate {
    /// What is computed.
    pub function: AggregateFunction,
    /// The argument; `None` for `count(*)`.
    pub argument: Option<Expr>,
    /// Equal arguments of a group count once. Floats are equal here where their bits are, as in DataFusion.
    pub distinct: bool,
    /// The result's type and nullability, as DataFusion's planner has it.
    pub field: Field,
}

/// Aggregate functions; NULL arguments are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// Rows (`count(*)`) or arguments that are not NULL.
    Count,
    /// Sum; integers wrap, NULL over no rows.
    Sum,
    /// Sum of integers, an error where its type does not hold it; NULL over no rows.
    SumExact,
    /// Minimum; NULL over no rows.
    Min,
    /// Maximum; NULL over no rows.
    Max,
    /// Mean; NULL over no rows.
    Avg,
    /// Bitwise and of integers; NULL over no rows.
    BitAnd,
    /// Bitwise or of integers; NULL over no rows.
    BitOr,
    /// Bitwise exclusive or of integers; NULL over no rows.
    BitXor,
    /// Variance of a sample of `Float64`; NULL over less than two rows.
    VarSample,
    /// Variance of a population of `Float64`; NULL over no rows.
    VarPopulation,
    /// Square root of `VarSample`.
    StddevSample,
    /// Square root of `VarPopulation`.
    StddevPopulation,
    /// The greatest of so many least arguments (with `distinct`, of so many different ones): whatever is among these is no greater. NULL
    /// where there are fewer; it may be where it is the last value of its type.
    LeastBound(Few),
    /// The least of so many greatest arguments, likewise.
    GreatestBound(Few),
    /// A statistic of pairs of `Float64` ([`Function::Pair`](crate::expr::Function::Pair)) of which neither is NULL.
    OfPairs(PairStatistic),
}

impl AggregateFunction {
    /// What makes the aggregate of some rows of those of parts of them; `None` where nothing does.
    pub fn of_parts(self) -> Option<AggregateFunction> {
        use AggregateFunction::*;
        match self {
            Count => Some(Sum),
            Sum | SumExact | Min | Max | BitAnd | BitOr | BitXor => Some(self),
            _ => None,
        }
    }
}

/// What is computed of pairs of values. The names are those of a regression, in which the first of a pair is `y` and the second `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PairStatistic {
    /// Covariance of a sample; NULL over less than two pairs.
    CovarianceSample,
    /// Covariance of a population; NULL over no pairs.
    CovariancePopulation,
    /// Pearson's correlation; NULL over less than two pairs, and where one of the two does not vary.
    Correlation,
    /// Slope of the line of least squares; NULL over less than two pairs, and where `x` does not vary.
    Slope,
    /// Where that line is at `x = 0`, likewise.
    Intercept,
    /// Square of the correlation, likewise, and NULL where `y` does not vary.
    Determination,
    /// Mean of `x`; NULL over no pairs.
    MeanX,
    /// Mean of `y`; NULL over no pairs.
    MeanY,
    /// Sum of squared distances of `x` from its mean; NULL over no pairs.
    SquaresX,
    /// The same of `y`.
    SquaresY,
    /// Sum of products of both distances.
    Products,
}

impl PairStatistic {
    /// Every statistic.
    pub const ALL: [PairStatistic; 11] = {
        use PairStatistic::*;
        [
            CovarianceSample, CovariancePopulation, Correlation, Slope, Intercept, Determination, MeanX,
            MeanY, SquaresX, SquaresY, Products,
        ]
    };

    /// Whether it is the same where both values of each pair change places.
    pub const fn is_symmetric(self) -> bool {
        use PairStatistic::*;
        matches!(self, CovarianceSample | CovariancePopulation | Correlation | Determination | Products)
    }
}

/// A number of values that a group keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Few {
    /// 2
    Two,
    /// 4
    Four,
    /// 8
    Eight,
    /// 16
    Sixteen,
}

impl Few {
    /// Every number.
    pub const ALL: [Few; 4] = [Few::Two, Few::Four, Few::Eight, Few::Sixteen];
    /// The greatest number.
    pub const MOST: usize = Few::Sixteen.number();

    /// The number.
    pub const fn number(self) -> usize {
        match self {
            Few::Two => 2,
            Few::Four => 4,
            Few::Eight => 8,
            Few::Sixteen => 16,
        }
    }

    /// The least number that is no less than another; `None` where that is greater than all of them.
    pub fn of(number: u64) -> Option<Few> {
        Few::ALL.into_iter().find(|few| few.number() as u64 >= number)
    }
}

/// A sort key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SortKey {
    /// Over the input's columns.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

impl Plan {
    /// The expression that a column is, where a projection computes it, possibly below filters.
    pub(crate) fn computed(&self, column: usize) -> Option<&Expr> {
        match self {
            Plan::Project { exprs, .. } => exprs.get(column),
            Plan::Filter { input, .. } => input.computed(column),
            _ => None,
        }
    }

    /// Lets the projection that [`Plan::computed`] finds give another expression over its input too: the number of its column.
    pub(crate) fn pass_on(&mut self, expr: &Expr) -> Option<usize> {
        match self {
            Plan::Project { exprs, names, .. } => {
                Some(exprs.iter().position(|known| known == expr).unwrap_or_else(|| {
                    exprs.push(expr.clone());
                    names.push(String::new());
                    exprs.len() - 1
                }))
            }
            Plan::Filter { input, .. } => input.pass_on(expr),
            _ => None,
        }
    }

    /// The plans that this one takes its rows from, in the order in which scans are numbered.
    pub fn inputs(&self) -> Vec<&Plan> {
        match self {
            Plan::Scan(_) => Vec::new(),
            Plan::Filter { input, .. }
            | Plan::Project { input, .. }
            | Plan::Aggregate { input, .. }
            | Plan::Sort { input, .. }
            | Plan::Limit { input, .. } => vec![input],
            Plan::Ranked(ranked) => vec![&ranked.input],
            Plan::Window(window) => vec![&window.input],
            Plan::GroupingSets(sets) => vec![&sets.input],
            Plan::Join(join) => vec![&join.build, &join.probe],
            Plan::Union { inputs, .. } => inputs.iter().collect(),
            Plan::Scalars { input, subqueries } => {
                subqueries.iter().chain(std::iter::once(input.as_ref())).collect()
            }
        }
    }

    /// As [`Plan::inputs`].
    fn inputs_mut(&mut self) -> Vec<&mut Plan> {
        match self {
            Plan::Scan(_) => Vec::new(),
            Plan::Filter { input, .. }
            | Plan::Project { input, .. }
            | Plan::Aggregate { input, .. }
            | Plan::Sort { input, .. }
            | Plan::Limit { input, .. } => vec![input],
            Plan::Ranked(ranked) => vec![&mut ranked.input],
            Plan::Window(window) => vec![&mut window.input],
            Plan::GroupingSets(sets) => vec![&mut sets.input],
            Plan::Join(join) => vec![&mut join.build, &mut join.probe],
            Plan::Union { inputs, .. } => inputs.iter_mut().collect(),
            Plan::Scalars { input, subqueries } => {
                subqueries.iter_mut().chain(std::iter::once(input.as_mut())).collect()
            }
        }
    }

    /// This node's own expressions, not its inputs'.
    fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Plan::Scan(_) | Plan::Union { .. } | Plan::Scalars { .. } | Plan::Limit { .. } => Vec::new(),
            Plan::Filter { predicate, .. } => vec![predicate],
            Plan::Project { exprs, .. } => exprs.iter_mut().collect(),
            Plan::Aggregate { keys, aggregates, .. } => {
                let arguments = aggregates.iter_mut().filter_map(|aggregate| aggregate.argument.as_mut());
                keys.iter_mut().chain(arguments).collect()
            }
            Plan::Ranked(ranked) => ranked.exprs_mut().collect(),
            Plan::Window(window) => window.exprs_mut().collect(),
            Plan::GroupingSets(sets) => sets.exprs_mut().collect(),
            Plan::Join(join) => {
                let keys = join.keys.iter_mut().flat_map(|(build, probe)| [build, probe]);
                keys.chain(join.residual.as_mut()).collect()
            }
            Plan::Sort { keys, .. } => keys.iter_mut().map(|key| &mut key.expr).collect(),
        }
    }

    /// This node's own expressions, not its inputs'.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Plan::Scan(_) | Plan::Union { .. } | Plan::Scalars { .. } | Plan::Limit { .. } => Vec::new(),
            Plan::Filter { predicate, .. } => vec![predicate],
            Plan::Project { exprs, .. } => exprs.iter().collect(),
            Plan::Aggregate { keys, aggregates, .. } => {
                keys.iter().chain(aggregates.iter().filter_map(|it| it.argument.as_ref())).collect()
            }
            Plan::Ranked(ranked) => ranked.exprs().collect(),
            Plan::Window(window) => window.exprs().collect(),
            Plan::GroupingSets(sets) => sets.exprs().collect(),
            Plan::Join(join) => {
                let keys = join.keys.iter().flat_map(|(build, probe)| [build, probe]);
                keys.chain(&join.residual).collect()
            }
            Plan::Sort { keys, .. } => keys.iter().map(|key| &key.expr).collect(),
        }
    }

    /// Whether the value of a subquery of a plan around it stands in this plan.
    pub fn waits_for_values(&self) -> bool {
        fn reads(expr: &Expr) -> bool {
            matches!(expr.kind, ExprKind::Scalar(_)) || children(expr).into_iter().any(reads)
        }
        let own = self.exprs().into_iter().any(reads);
        !matches!(self, Plan::Scalars { .. })
            && (own || self.inputs().into_iter().any(Plan::waits_for_values))
    }

    /// This plan with each input replaced by what `map` makes of it; the first error wins.
    pub fn map_inputs<E>(&self, map: &mut impl FnMut(&Plan) -> Result<Plan, E>) -> Result<Plan, E> {
        let mut plan = self.clone();
        for input in plan.inputs_mut() {
            *input = map(input)?;
        }
        Ok(plan)
    }

    /// This node with each of its own expressions (not its inputs') replaced by what `map` makes of it.
    pub fn map_exprs(&self, map: &dyn Fn(&Expr) -> Expr) -> Plan {
        let mut plan = self.clone();
        plan.exprs_mut().into_iter().for_each(|expr| *expr = map(expr));
        plan
    }

    /// This plan with every constant replaced by the NULL of its type: what plans have in common that differ in constants only.
    /// Patterns and what else is no expression of its own stay.
    pub fn without_constants(&self) -> Plan {
        let mut plan = self.clone();
        plan.clear_constants();
        plan
    }

    fn clear_constants(&mut self) {
        let null = |expr: &Expr| match expr.kind {
            ExprKind::Literal(_) => Some(Expr::literal(Literal::Null, expr.data_type.clone())),
            _ => None,
        };
        self.exprs_mut().into_iter().for_each(|expr| *expr = substitute(expr, &null));
        self.inputs_mut().into_iter().for_each(Plan::clear_constants);
    }

    /// The columns of the result.
    pub fn fields(&self) -> Vec<Field> {
        match self {
            Plan::Scan(scan) => scan.fields.clone(),
            Plan::Filter { input, .. }
            | Plan::Sort { input, .. }
            | Plan::Limit { input, .. }
            | Plan::Scalars { input, .. } => input.fields(),
            Plan::Join(join) => join.fields(),
            Plan::Ranked(ranked) => ranked.fields(),
            Plan::Window(window) => window.fields(),
            Plan::GroupingSets(sets) => sets.fields.clone(),
            Plan::Union { fields, .. } => fields.clone(),
            Plan::Project { exprs, names, .. } => {
                exprs.iter().zip(names).map(|(e, name)| field(e, name)).collect()
            }
            Plan::Aggregate { keys, aggregates, names, .. } => {
                let keys = keys.iter().zip(names).map(|(e, name)| field(e, name));
                keys.chain(aggregates.iter().map(|aggregate| aggregate.field.clone())).collect()
            }
        }
    }
}

fn field(expr: &Expr, name: &str) -> Field {
    Field { name: name.into(), data_type: expr.data_type.clone(), nullable: expr.nullable }
}
