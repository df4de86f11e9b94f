//! The tables `customer`, `supplier` and `part`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tpchgen::distribution::{Distribution, Distributions};

use super::Sizes;
use crate::output::{Table, keyed_table};
use crate::random::Column;

const CUSTOMER_CITY: Column = Column::new("customer city");
const CUSTOMER_ADDRESS: Column = Column::new("customer address");
const CUSTOMER_PHONE: Column = Column::new("customer phone");
const CUSTOMER_SEGMENT: Column = Column::new("customer segment");
const SUPPLIER_CITY: Column = Column::new("supplier city");
const SUPPLIER_ADDRESS: Column = Column::new("supplier address");
const SUPPLIER_PHONE: Column = Column::new("supplier phone");
const PART_BRAND: Column = Column::new("part brand");
const PART_NAME: Column = Column::new("part name");
const PART_COLOR: Column = Column::new("part color");
const PART_TYPE: Column = Column::new("part type");
const PART_SIZE: Column = Column::new("part size");
const PART_CONTAINER: Column = Column::new("part container");

const CITIES: u32 = 250;
const BRANDS: u32 = 1000;

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// Nations, five a region; with their numbers in TPC-H, which lead the phone numbers.
const NATIONS: [(&str, u32); 25] = [
    ("ALGERIA", 0),
    ("ETHIOPIA", 5),
    ("KENYA", 14),
    ("MOROCCO", 15),
    ("MOZAMBIQUE", 16),
    ("ARGENTINA", 1),
    ("BRAZIL", 2),
    ("CANADA", 3),
    ("PERU", 17),
    ("UNITED STATES", 24),
    ("CHINA", 18),
    ("INDIA", 8),
    ("INDONESIA", 9),
    ("JAPAN", 12),
    ("VIETNAM", 21),
    ("FRANCE", 6),
    ("GERMANY", 7),
    ("ROMANIA", 19),
    ("RUSSIA", 22),
    ("UNITED KINGDOM", 23),
    ("EGYPT", 4),
    ("IRAN", 10),
    ("IRAQ", 11),
    ("JORDAN", 13),
    ("SAUDI ARABIA", 20),
];

/// A city: ten a nation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct City(u32);

impl City {
    /// The nation cut or padded to 9 characters, and a digit.
    pub fn name(self) -> String {
        format!("{:9.9}{}", self.nation(), self.0 % 10)
    }

    /// Its nation.
    pub fn nation(self) -> &'static str {
        NATIONS[self.0 as usize / 10].0
    }

    /// Its region.
    pub fn region(self) -> &'static str {
        REGIONS[self.0 as usize / 50]
    }

    /// A phone number of it, as in TPC-H.
    fn phone(self, column: Column, row: u64) -> String {
        let country = NATIONS[self.0 as usize / 10].1 + 10;
        let part = |i: u64, low, high| column.between(row * 4 + i, low, high);
        format!("{country}-{}-{}-{}", part(0, 100, 999), part(1, 100, 999), part(2, 1000, 9999))
    }
}

/// The city of a customer, by key from 1.
pub(super) fn customer_city(key: u64) -> City {
    City(CUSTOMER_CITY.below(key, CITIES))
}

/// The city of a supplier, by key from 1.
pub(super) fn supplier_city(key: u64) -> City {
    City(SUPPLIER_CITY.below(key, CITIES))
}

/// A brand: 40 a category, 5 categories a manufacturer, 5 manufacturers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Brand(u32);

impl Brand {
    /// `MFGR#1` to `MFGR#5`.
    pub fn manufacturer(self) -> String {
        format!("MFGR#{}", self.0 / 200 + 1)
    }

    /// `MFGR#11` to `MFGR#55`.
    pub fn category(self) -> String {
        format!("{}{}", self.manufacturer(), self.0 / 40 % 5 + 1)
    }

    /// The category and 1 to 40.
    pub fn name(self) -> String {
        format!("{}{}", self.category(), self.0 % 40 + 1)
    }
}

/// The brand of a part, by key from 1.
pub(super) fn part_brand(key: u64) -> Brand {
    Brand(PART_BRAND.below(key, BRANDS))
}

/// The price of a part in cents, by key from 1: TPC-H's retail price.
pub(super) fn part_price(key: u64) -> i32 {
    (90_000 + key / 10 % 20_001 + 100 * (key % 1000)) as i32
}

/// One of a list of TPC-H, uniformly.
fn pick(column: Column, row: u64, list: &'static Distribution) -> &'static str {
    let values = list.get_values();
    values[column.below(row, values.len() as u32) as usize]
}

/// A schema of text columns, but for the names that are integers.
fn schema(names: &[&str], integers: &[&str]) -> SchemaRef {
    let field = |name: &&str| {
        let data_type = if integers.contains(name) { DataType::Int32 } else { DataType::Utf8 };
        Field::new(*name, data_type, false)
    };
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

fn integers(keys: &[u64], value: impl Fn(u64) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(keys.iter().map(|k| value(*k))))
}

fn text<S: AsRef<str>>(keys: &[u64], value: impl Fn(u64) -> S) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(keys.iter().map(|k| value(*k))))
}

/// The table `customer`.
pub(super) fn customer(sizes: Sizes) -> Table {
    let names =
        ["c_custkey", "c_name", "c_address", "c_city", "c_nation", "c_region", "c_phone", "c_mktsegment"];
    keyed_table("customer", schema(&names, &["c_custkey"]), sizes.customers, |keys| {
        let segments = Distributions::static_default().market_segments();
        vec![
            integers(keys, |k| k as i32),
            text(keys, |k| format!("Customer#{k:09}")),
            text(keys, |k| CUSTOMER_ADDRESS.address(k)),
            text(keys, |k| customer_city(k).name()),
            text(keys, |k| customer_city(k).nation()),
            text(keys, |k| customer_city(k).region()),
            text(keys, |k| customer_city(k).phone(CUSTOMER_PHONE, k)),
            text(keys, |k| pick(CUSTOMER_SEGMENT, k, segments)),
        ]
    })
}

/// The table `supplier`.
pub(super) fn supplier(sizes: Sizes) -> Table {
    let names = ["s_suppkey", "s_name", "s_address", "s_city", "s_nation", "s_region", "s_phone"];
    keyed_table("supplier", schema(&names, &["s_suppkey"]), sizes.suppliers, |keys| {
        vec![
            integers(keys, |k| k as i32),
            text(keys, |k| format!("Supplier#{k:09}")),
            text(keys, |k| SUPPLIER_ADDRESS.address(k)),
            text(keys, |k| supplier_city(k).name()),
            text(keys, |k| supplier_city(k).nation()),
            text(keys, |k| supplier_city(k).region()),
            text(keys, |k| supplier_city(k).phone(SUPPLIER_PHONE, k)),
        ]
    })
}

/// The table `part`.
pub(super) fn part(sizes: Sizes) -> Table {
    let names = [
        "p_partkey", "p_name", "p_mfgr", "p_category", "p_brand1", "p_color", "p_type", "p_size",
        "p_container",
    ];
    keyed_table("part", schema(&names, &["p_partkey", "p_size"]), sizes.parts, |keys| {
        let lists = Distributions::static_default();
        let (colors, types, containers) = (lists.part_colors(), lists.part_types(), lists.part_containers());
        vec![
            integers(keys, |k| k as i32),
            text(keys, |k| {
                format!("{} {}", pick(PART_NAME, 2 * k, colors), pick(PART_NAME, 2 * k + 1, colors))
            }),
            text(keys, |k| part_brand(k).manufacturer()),
            text(keys, |k| part_brand(k).category()),
            text(keys, |k| part_brand(k).name()),
            text(keys, |k| pick(PART_COLOR, k, colors)),
            text(keys, |k| pick(PART_TYPE, k, types)),
            integers(keys, |k| PART_SIZE.between(k, 1, 50)),
            text(keys, |k| pick(PART_CONTAINER, k, containers)),
        ]
    })
}
