//! The table `lineorder`: orders of 1 to 7 lines.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;

use super::Sizes;
use super::calendar::{ORDER_DAYS, days};
use super::dimensions::part_price;
use crate::output::{Batches, Part, ROWS_PER_BATCH, Table, part_count};
use crate::random::Column;

const LINES: Column = Column::new("order lines");
const CUSTOMER: Column = Column::new("order customer");
const DATE: Column = Column::new("order date");
const PRIORITY: Column = Column::new("order priority");
const PART: Column = Column::new("line part");
const SUPPLIER: Column = Column::new("line supplier");
const QUANTITY: Column = Column::new("line quantity");
const DISCOUNT: Column = Column::new("line discount");
const TAX: Column = Column::new("line tax");
const COMMIT: Column = Column::new("line commit");
const SHIP_MODE: Column = Column::new("line ship mode");

const LINES_PER_ORDER: u64 = 4;

const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const SHIP_MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];

/// A line of an order. Days count from 1992-01-01; money is in cents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub order_key: i32,
    pub number: i32,
    pub customer: i32,
    pub part: i32,
    pub supplier: i32,
    pub order_day: u32,
    pub priority: &'static str,
    pub quantity: i32,
    pub extended_price: i32,
    pub order_total: i32,
    pub discount: i32,
    pub revenue: i32,
    pub supply_cost: i32,
    pub tax: i32,
    pub commit_day: u32,
    pub ship_mode: &'static str,
}

/// The lines of an order, by its number from 0, at the end of `lines`.
pub(super) fn push_order(sizes: Sizes, order: u64, lines: &mut Vec<Line>) {
    let first = lines.len();
    let count = 1 + u64::from(LINES.below(order, 7));
    let sequence = order + 1;
    let order_day = DATE.below(order, ORDER_DAYS);
    let template = Line {
        // Sparse as in TPC-H: of 32 keys, the first 8 are used.
        order_key: (sequence >> 3 << 5 | sequence & 7) as i32,
        customer: ordering_customer(sizes, order),
        order_day,
        priority: PRIORITIES[PRIORITY.below(order, 5) as usize],
        number: 0,
        part: 0,
        supplier: 0,
        quantity: 0,
        extended_price: 0,
        order_total: 0,
        discount: 0,
        revenue: 0,
        supply_cost: 0,
        tax: 0,
        commit_day: 0,
        ship_mode: "",
    };
    let mut total = 0;
    for number in 0..count {
        let row = order * 8 + number;
        let part = 1 + PART.below(row, sizes.parts as u32);
        let price = part_price(u64::from(part));
        let quantity = QUANTITY.between(row, 1, 50);
        let (discount, tax) = (DISCOUNT.between(row, 0, 10), TAX.between(row, 0, 8));
        let extended_price = quantity * price;
        // In 64 bits: 10,494,950 × 100 is near the end of 32.
        let revenue = (i64::from(extended_price) * i64::from(100 - discount) / 100) as i32;
        total += i64::from(revenue) * i64::from(100 + tax) / 100;
        lines.push(Line {
            number: number as i32 + 1,
            part: part as i32,
            supplier: 1 + SUPPLIER.below(row, sizes.suppliers as u32) as i32,
            quantity,
            extended_price,
            discount,
            revenue,
            supply_cost: 6 * price / 10,
            tax,
            commit_day: order_day + COMMIT.between(row, 30, 90) as u32,
            ship_mode: SHIP_MODES[SHIP_MODE.below(row, 7) as usize],
            ..template
        });
    }
    for line in &mut lines[first..] {
        line.order_total = total as i32;
    }
}

/// A customer whose key is not a multiple of three: a third never orders.
fn ordering_customer(sizes: Sizes, order: u64) -> i32 {
    let ordering = sizes.customers - sizes.customers / 3;
    let index = CUSTOMER.below(order, ordering as u32);
    (index / 2 * 3 + index % 2 + 1) as i32
}

/// The table.
pub(super) fn table(sizes: Sizes) -> Table {
    let count = part_count(sizes.orders * LINES_PER_ORDER);
    let part = |number: u64| {
        let orders = sizes.orders * number / count..sizes.orders * (number + 1) / count;
        let rows = (orders.end - orders.start) * LINES_PER_ORDER;
        let batches = move || -> Batches { Box::new(LineBatches::new(sizes, orders.clone())) };
        Part { rows, batches: Box::new(batches) }
    };
    Table { name: "lineorder", schema: schema(), parts: (0..count).map(part).collect() }
}

struct LineBatches {
    sizes: Sizes,
    orders: Range<u64>,
    schema: SchemaRef,
    date_keys: Vec<i32>,
}

impl LineBatches {
    fn new(sizes: Sizes, orders: Range<u64>) -> LineBatches {
        LineBatches { sizes, orders, schema: schema(), date_keys: days().iter().map(|d| d.key()).collect() }
    }

    fn batch(&self, lines: &[Line]) -> Result<RecordBatch, ArrowError> {
        let int = |value: fn(&Line) -> i32| -> ArrayRef {
            Arc::new(Int32Array::from_iter_values(lines.iter().map(value)))
        };
        let text = |value: fn(&Line) -> &'static str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(lines.iter().map(value)))
        };
        let date = |day: fn(&Line) -> u32| -> ArrayRef {
            Arc::new(Int32Array::from_iter_values(lines.iter().map(|l| self.date_keys[day(l) as usize])))
        };
        let columns = vec![
            int(|l| l.order_key),
            int(|l| l.number),
            int(|l| l.customer),
            int(|l| l.part),
            int(|l| l.supplier),
            date(|l| l.order_day),
            text(|l| l.priority),
            text(|_| "0"),
            int(|l| l.quantity),
            int(|l| l.extended_price),
            int(|l| l.order_total),
            int(|l| l.discount),
            int(|l| l.revenue),
            int(|l| l.supply_cost),
            int(|l| l.tax),
            date(|l| l.commit_day),
            text(|l| l.ship_mode),
        ];
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

impl Iterator for LineBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut lines = Vec::with_capacity(ROWS_PER_BATCH + 7);
        while lines.len() < ROWS_PER_BATCH {
            let Some(order) = self.orders.next() else { break };
            push_order(self.sizes, order, &mut lines);
        }
        (!lines.is_empty()).then(|| self.batch(&lines))
    }
}

fn schema() -> SchemaRef {
    use DataType::{Int32, Utf8};
    let fields = [
        ("lo_orderkey", Int32),
        ("lo_linenumber", Int32),
        ("lo_custkey", Int32),
        ("lo_partkey", Int32),
        ("lo_suppkey", Int32),
        ("lo_orderdate", Int32),
        ("lo_orderpriority", Utf8),
        ("lo_shippriority", Utf8),
        ("lo_quantity", Int32),
        ("lo_extendedprice", Int32),
        ("lo_ordertotalprice", Int32),
        ("lo_discount", Int32),
        ("lo_revenue", Int32),
        ("lo_supplycost", Int32),
        ("lo_tax", Int32),
        ("lo_commitdate", Int32),
        ("lo_shipmode", Utf8),
    ];
    Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, false)).to_vec()))
}
