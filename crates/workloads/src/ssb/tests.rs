//! Cardinalities, value ranges and selectivities of the data.

use std::collections::HashSet;

use datafusion::prelude::{ParquetReadOptions, SessionContext};

use super::calendar::{Day, days};
use super::dimensions::{customer_city, part_brand, part_price, supplier_city};
use super::lineorder::{Line, push_order};
use super::*;

/// The data at scale factor 1, with what the queries ask of the dimensions.
struct Star {
    sizes: Sizes,
    days: Vec<Day>,
    customers: Vec<(String, &'static str, &'static str)>,
    suppliers: Vec<(String, &'static str, &'static str)>,
    brands: Vec<(String, String, String)>,
}

impl Star {
    fn new() -> Star {
        let sizes = Sizes::of(1.0);
        Star {
            sizes,
            days: days(),
            customers: (0..=sizes.customers)
                .map(customer_city)
                .map(|c| (c.name(), c.nation(), c.region()))
                .collect(),
            suppliers: (0..=sizes.suppliers)
                .map(supplier_city)
                .map(|c| (c.name(), c.nation(), c.region()))
                .collect(),
            brands: (0..=sizes.parts)
                .map(part_brand)
                .map(|b| (b.manufacturer(), b.category(), b.name()))
                .collect(),
        }
    }

    /// Which of the 13 queries a line passes.
    fn passes(&self, l: &Line) -> [bool; 13] {
        let day = self.days[l.order_day as usize];
        let (c_city, c_nation, c_region) = &self.customers[l.customer as usize];
        let (s_city, s_nation, s_region) = &self.suppliers[l.supplier as usize];
        let (mfgr, category, brand) = &self.brands[l.part as usize];
        let (discount, quantity, year) = (l.discount, l.quantity, day.year);
        let until_1997 = year <= 1997;
        let late = year >= 1997;
        let uk = |city: &str| city == "UNITED KI1" || city == "UNITED KI5";
        let americas =
            *c_region == "AMERICA" && *s_region == "AMERICA" && (mfgr == "MFGR#1" || mfgr == "MFGR#2");
        let brand_in_range = ("MFGR#2221"..="MFGR#2228").contains(&brand.as_str());
        [
            year == 1993 && (1..=3).contains(&discount) && quantity < 25,
            year == 1994 && day.month == 1 && (4..=6).contains(&discount) && (26..=35).contains(&quantity),
            year == 1994 && day.week() == 6 && (5..=7).contains(&discount) && (26..=35).contains(&quantity),
            category == "MFGR#12" && *s_region == "AMERICA",
            brand_in_range && *s_region == "ASIA",
            brand == "MFGR#2239" && *s_region == "EUROPE",
            *c_region == "ASIA" && *s_region == "ASIA" && until_1997,
            *c_nation == "UNITED STATES" && *s_nation == "UNITED STATES" && until_1997,
            uk(c_city) && uk(s_city) && until_1997,
            uk(c_city) && uk(s_city) && year == 1997 && day.month == 12,
            americas,
            americas && late,
            *s_nation == "UNITED STATES" && late && category == "MFGR#14",
        ]
    }
}

/// Rows that pass at scale factor 1, of the benchmark's own generator.
const PASSING: [u32; 13] =
    [118_735, 4_251, 1_029, 46_026, 10_577, 1_122, 246_821, 8_606, 339, 5, 90_353, 21_803, 2_207];

#[test]
fn selectivities_and_values_at_scale_1_are_those_of_the_benchmark() {
    let star = Star::new();
    let (mut lines, mut rows, mut counts, mut max_key) = (Vec::new(), 0u64, [0u32; 13], 0);
    for order in 0..star.sizes.orders {
        lines.clear();
        push_order(star.sizes, order, &mut lines);
        rows += lines.len() as u64;
        max_key = max_key.max(lines[0].order_key);
        check_order(&star, &lines);
        for line in &lines {
            for (count, passes) in counts.iter_mut().zip(star.passes(line)) {
                *count += u32::from(passes);
            }
        }
    }
    assert_eq!(max_key, 6_000_000);
    assert!(rows.abs_diff(6_001_173) < 10_000, "{rows} rows");
    for ((name, _), (found, expected)) in QUERIES.iter().zip(counts.iter().zip(PASSING)) {
        // Few rows are chance.
        let tolerance = if expected > 1000 { expected / 10 } else { expected };
        assert!(
            found.abs_diff(expected) <= tolerance,
            "query {name}: {found} rows pass, expected {expected}"
        );
    }
}

/// What holds of every order.
fn check_order(star: &Star, lines: &[Line]) {
    assert!((1..=7).contains(&lines.len()));
    let mut total = 0;
    for (i, line) in lines.iter().enumerate() {
        let price = part_price(line.part as u64);
        assert!((90_100..=209_899).contains(&price), "{line:?}");
        assert_eq!(line.number as usize, i + 1);
        assert!(
            line.customer % 3 != 0 && (1..=star.sizes.customers as i32).contains(&line.customer),
            "{line:?}"
        );
        assert!((30..=90).contains(&(line.commit_day - line.order_day)));
        assert_eq!(line.extended_price, line.quantity * price);
        assert_eq!(
            i64::from(line.revenue),
            i64::from(line.extended_price) * i64::from(100 - line.discount) / 100
        );
        total += i64::from(line.revenue) * i64::from(100 + line.tax) / 100;
    }
    assert!(lines.iter().all(|l| i64::from(l.order_total) == total && l.order_key == lines[0].order_key));
}

#[test]
fn sizes_follow_the_scale() {
    for (scale, customers, suppliers, parts, orders) in [
        (0.01, 300, 20, 2_000, 15_000),
        (1.0, 30_000, 2_000, 200_000, 1_500_000),
        (2.0, 60_000, 4_000, 400_000, 3_000_000),
        (3.9, 117_000, 7_800, 400_000, 5_850_000),
        (10.0, 300_000, 20_000, 800_000, 15_000_000),
        (100.0, 3_000_000, 200_000, 1_400_000, 150_000_000),
        (1e-9, 1, 1, 1, 1),
    ] {
        assert_eq!(Sizes::of(scale), Sizes { customers, suppliers, parts, orders }, "{scale}");
    }
}

#[test]
fn names_of_cities_and_brands() {
    let cities: HashSet<String> = (1..=30_000).map(|k| customer_city(k).name()).collect();
    assert_eq!(cities.len(), 250);
    assert!(cities.contains("UNITED KI1") && cities.contains("PERU     9"));
    let brands: HashSet<String> = (1..=200_000).map(|k| part_brand(k).name()).collect();
    assert_eq!(brands.len(), 1000);
    assert!(brands.contains("MFGR#2239") && brands.contains("MFGR#5540") && brands.contains("MFGR#111"));
}

#[tokio::test]
async fn the_queries_run_on_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let written = generate(&GenerateOptions {
        scale: 0.01,
        output: folder.path(),
        tables: &[],
        threads: 2,
        replace: false,
        progress: &|_| {},
    })
    .unwrap();
    let rows: Vec<(&str, u64)> = written.iter().map(|t| (t.name, t.rows)).collect();
    assert_eq!(rows[..4], [("date", 2557), ("supplier", 20), ("customer", 300), ("part", 2000)]);
    assert!(rows[4].1.abs_diff(60_000) < 1000, "{rows:?}");
    let context = SessionContext::new();
    for table in TABLES {
        let path = folder.path().join(format!("{table}.parquet"));
        context.register_parquet(table, path.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    }
    for (name, sql) in QUERIES {
        let result = context.sql(sql).await.unwrap().collect().await;
        assert!(result.is_ok(), "{name}: {result:?}");
    }
    let distinct = "select count(distinct c_region), count(distinct c_nation) from customer";
    let batches = context.sql(distinct).await.unwrap().collect().await.unwrap();
    let text = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    assert!(text.contains("| 5 ") && text.contains("| 25 "), "{text}");
}
