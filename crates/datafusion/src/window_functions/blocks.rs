//! Aggregates over frames that rows leave, of which nothing can be subtracted: `string_agg`, `bit_or`, a list. A frame is blocks of rows, each with
//! what its rows come to once it is full, and all of these and the rows at both ends are brought together for each row of the window.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

/// Rows of a block.
const BLOCK_ROWS: usize = 64;

/// All that an aggregate needs to begin anew.
#[derive(Debug)]
struct Call {
    function: Arc<AggregateUDF>,
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Call {
    fn begun(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// Rows that follow each other.
#[derive(Debug)]
struct Block {
    arguments: Vec<ArrayRef>,
    /// First rows that have left the frame.
    left: usize,
    /// What all its rows come to, once it was asked for.
    state: Option<Vec<ArrayRef>>,
}

impl Block {
    fn rows(&self) -> usize {
        self.arguments.first().map_or(0, |values| values.len())
    }
}

/// The rows of a frame.
#[derive(Debug)]
pub(super) struct InBlocks {
    call: Call,
    /// The oldest first.
    blocks: VecDeque<Block>,
    /// Rows behind the blocks, as they have come.
    newest: Vec<Vec<ArrayRef>>,
    newest_rows: usize,
}

impl InBlocks {
    pub fn new(function: Arc<AggregateUDF>, arguments: &AccumulatorArgs<'_>) -> InBlocks {
        let call = Call {
            function,
            return_field: Arc::clone(&arguments.return_field),
            schema: arguments.schema.clone(),
            ignore_nulls: arguments.ignore_nulls,
            order_bys: arguments.order_bys.to_vec(),
            is_reversed: arguments.is_reversed,
            name: arguments.name.to_string(),
            is_distinct: arguments.is_distinct,
            exprs: arguments.exprs.to_vec(),
            expr_fields: arguments.expr_fields.to_vec(),
        };
        InBlocks { call, blocks: VecDeque::new(), newest: Vec::new(), newest_rows: 0 }
    }

    /// Makes the newest rows a block.
    fn close(&mut self) -> Result<()> {
        let Some(first) = self.newest.first() else { return Ok(()) };
        let column = |place: usize| {
            let parts: Vec<&dyn Array> =
                self.newest.iter().filter_map(|rows| rows.get(place)).map(AsRef::as_ref).collect();
            concat(&parts)
        };
        let arguments = (0..first.len()).map(column).collect::<Result<Vec<_>, _>>()?;
        self.blocks.push_back(Block { arguments, left: 0, state: None });
        self.newest.clear();
        self.newest_rows = 0;
        Ok(())
    }
}

impl Accumulator for InBlocks {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        self.newest_rows += arguments.first().map_or(0, |values| values.len());
        self.newest.push(arguments.to_vec());
        if self.newest_rows >= BLOCK_ROWS { self.close() } else { Ok(()) }
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        let mut rows = arguments.first().map_or(0, |values| values.len());
        while rows > 0 {
            if self.blocks.is_empty() {
                self.close()?;
            }
            let Some(block) = self.blocks.front_mut() else {
                return internal_err!("more rows leave a frame than have come into it");
            };
            let leaving = rows.min(block.rows() - block.left);
            block.left += leaving;
            rows -= leaving;
            if block.left == block.rows() {
                self.blocks.pop_front();
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut all = self.call.begun()?;
        for block in &mut self.blocks {
            if block.left > 0 {
                let rest = block.rows() - block.left;
                let rows: Vec<_> =
                    block.arguments.iter().map(|values| values.slice(block.left, rest)).collect();
                all.update_batch(&rows)?;
                continue;
            }
            if block.state.is_none() {
                let mut own = self.call.begun()?;
                own.update_batch(&block.arguments)?;
                let state = own.state()?.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
                block.state = Some(state);
            }
            if let Some(state) = &block.state {
                all.merge_batch(state)?;
            }
        }
        for rows in &self.newest {
            all.update_batch(rows)?;
        }
        all.evaluate()
    }

    fn size(&self) -> usize {
        let of =
            |arrays: &[ArrayRef]| arrays.iter().map(|values| values.get_array_memory_size()).sum::<usize>();
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|block| of(&block.arguments) + block.state.as_deref().map_or(0, of));
        // What is newest are a few rows of larger arrays, which the window holds.
        size_of_val(self) + blocks.sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a moving aggregate has no part for others")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a moving aggregate takes no parts of others")
    }
}
