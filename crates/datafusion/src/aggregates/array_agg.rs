//! `array_agg` of DISTINCT values and in an order, for many groups.
//!
//! DataFusion's own has an accumulator a group for these, which keeps each value by itself: 5 million rows in 200,000 groups take it half a
//! minute. All else of it stays.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_expr::PhysicalSortExpr;

use super::grouped_rows::{GroupedRows, Sorted, kept_rows, lists_of, single_lists, unpacked};

/// `array_agg`.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupedArrayAgg(ArrayAgg);

impl AggregateUDFImpl for GroupedArrayAgg {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        _beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        // What is sorted is sorted again in no time.
        Ok(Some(self))
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Lists::of(&arguments)? {
            Some(lists) => Ok(Box::new(OneGroup(lists))),
            None => self.0.accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        matches!(Lists::of(&arguments), Ok(Some(_))) || self.0.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match Lists::of(&arguments)? {
            Some(lists) => Ok(Box::new(lists)),
            None => self.0.create_groups_accumulator(arguments),
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// The lists of groups.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    value: DataType,
    /// What the values are sorted by, where they are not distinct.
    keys: Fields,
    order: Vec<(usize, SortField)>,
    is_distinct: bool,
    ignores_nulls: bool,
    /// Values, then keys.
    rows: GroupedRows,
}

impl Lists {
    /// What becomes of the values of each group; `None` where DataFusion's own accumulators are as good, or have to say what is wrong.
    pub(super) fn of(arguments: &AccumulatorArgs) -> Result<Option<Lists>> {
        let [value] = arguments.expr_fields else { return Ok(None) };
        let value = value.data_type().clone();
        let ordered = arguments.order_bys;
        let types = ordered.iter().map(|key| key.expr.data_type(arguments.schema));
        let types = types.collect::<Result<Vec<_>>>()?;
        let order: Vec<(usize, SortField)> = match (arguments.is_distinct, ordered) {
            (false, []) => return Ok(None),
            (true, []) => vec![(0, SortField::new(value.clone()))],
            (true, [key]) if Some(&key.expr) == arguments.exprs.first() => {
                vec![(0, SortField::new_with_options(value.clone(), key.options))]
            }
            (true, _) => return Ok(None),
            (false, ordered) => {
                let keys = ordered.iter().zip(&types).enumerate();
                let field = |(place, (key, data_type)): (usize, (&PhysicalSortExpr, &DataType))| {
                    (1 + place, SortField::new_with_options(data_type.clone(), key.options))
                };
                keys.map(field).collect()
            }
        };
        let fields: Vec<SortField> = order.iter().map(|(_, field)| field.clone()).collect();
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        let is_distinct = arguments.is_distinct;
        let keys: Fields = match is_distinct {
            true => Fields::empty(),
            false => {
                let named = ordered.iter().zip(&types);
                named
                    .map(|(key, data_type)| Field::new(key.expr.to_string(), data_type.clone(), true))
                    .collect()
            }
        };
        let columns = std::iter::once(value.clone()).chain(keys.iter().map(|key| key.data_type().clone()));
        let rows = GroupedRows::new(columns.collect());
        Ok(Some(Lists { value, keys, order, is_distinct, ignores_nulls: arguments.ignore_nulls, rows }))
    }
}

impl Lists {
    fn element(&self) -> FieldRef {
        Arc::new(Field::new_list_field(self.value.clone(), true))
    }

    fn sorted(&mut self, emit: EmitTo) -> Result<Sorted> {
        let sorted = self.rows.sorted(emit, &self.order)?;
        if self.is_distinct { sorted.distinct() } else { Ok(sorted) }
    }

    /// The values of groups, NULL for one without rows.
    fn values(&self, sorted: &Sorted) -> Result<ArrayRef> {
        let Some(values) = sorted.columns.first() else { return exec_err!("array_agg of nothing") };
        sorted.lists(self.element(), Arc::clone(values), sorted.empty_are_null())
    }

    fn key_element(&self) -> FieldRef {
        Arc::new(Field::new_list_field(DataType::Struct(self.keys.clone()), true))
    }

    fn structures(&self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        Ok(Arc::new(StructArray::try_new(self.keys.clone(), columns.to_vec(), None)?))
    }
}

impl GroupsAccumulator for Lists {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let columns = values.get(..1 + self.keys.len()).unwrap_or(values);
        let Some(first) = columns.first() else { return exec_err!("array_agg of nothing") };
        let kept = kept_rows(first, self.ignores_nulls, filter)?;
        self.rows.add(columns, groups, kept.as_ref(), count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        let mut lists = lists_of(states)?;
        if !self.is_distinct {
            let Some(orders) = lists.pop() else { return exec_err!("array_agg of nothing") };
            lists.extend(unpacked(&orders)?);
        }
        self.rows.add_lists(&lists, groups, count)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sorted = self.sorted(emit)?;
        self.values(&sorted)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let sorted = self.sorted(emit)?;
        let mut states = vec![self.values(&sorted)?];
        if !self.is_distinct {
            let keys = self.structures(sorted.columns.get(1..).unwrap_or_default())?;
            states.push(sorted.lists(self.key_element(), keys, None)?);
        }
        Ok(states)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let Some(first) = values.first() else { return exec_err!("array_agg of nothing") };
        let kept = kept_rows(first, self.ignores_nulls, filter)?;
        let mut states = vec![single_lists(self.element(), first, kept.as_ref())?];
        if !self.is_distinct {
            let keys = self.structures(values.get(1..).unwrap_or_default())?;
            // A list of values that is NULL leaves its row out, whatever stands here.
            states.push(single_lists(self.key_element(), &keys, None)?);
        }
        Ok(states)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.size()
    }
}

/// Groups whose rows stay when they are asked for.
pub(super) trait Kept: GroupsAccumulator + Clone {
    /// The lists of the rows.
    fn lists(&mut self) -> &mut Lists;
}

impl Kept for Lists {
    fn lists(&mut self) -> &mut Lists {
        self
    }
}

/// A group of all rows.
#[derive(Debug)]
pub(super) struct OneGroup<T>(pub T);

impl<T: Kept> OneGroup<T> {
    /// Of rows that stay: a window asks again and again.
    fn rows(&self) -> T {
        let mut groups = self.0.clone();
        groups.lists().rows.add_groups(1);
        groups
    }
}

impl<T: Kept + Debug + Sync + 'static> Accumulator for OneGroup<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |values| values.len());
        self.0.update_batch(values, &vec![0; rows], None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |states| states.len());
        self.0.merge_batch(states, &vec![0; rows], 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.rows().evaluate(EmitTo::All)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let states = self.rows().state(EmitTo::All)?;
        states.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
