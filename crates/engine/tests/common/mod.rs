//! What the tests of the engine share, and what nearly all of them use of the engine, the compiler and Arrow.

mod cases;
mod exprs;
mod random;
mod runs;
mod tables;

pub use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
pub use std::sync::Arc;

pub use arrow::array::*;
pub use arrow::datatypes::{
    DataType as ArrowType, Decimal128Type, Field as ArrowField, Float64Type, Int32Type, Int64Type, Schema,
};
pub use arrow::record_batch::RecordBatch;
pub use arrow::util::display::array_value_to_string;
pub use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function};
pub use kelpie_compile::plan::{
    Aggregate, AggregateFunction, Join, JoinKind, Plan, Rank, Ranked, RankedValue, Scan, SortKey,
};
pub use kelpie_compile::types::{DataType, Field, Literal};
pub use kelpie_engine::testing::{gpu, has_cuda};
pub use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, ExplainStage, Forced, MacroModel, MicroModel, Query,
    QueryError, QueryMetrics, QueryOptions, QueryOutput, Resolution, ShapeChoices, TableSource,
};

pub use self::cases::{covering, facets, facets_and, floor, is_whole, sample, sizes};
pub use self::exprs::*;
pub use self::random::{Random, random};
pub use self::runs::*;
pub use self::tables::*;
