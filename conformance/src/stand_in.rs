//! Tables in place of those that only DataFusion's repository has.
//!
//! Thousands of statements read a dozen small CSV files which the crate does not ship, and a table of a file that is not there has
//! no rows: nothing would be compared with nothing. As the two sessions are compared with each other, and not with the answers in
//! the files, any rows of the same columns serve; what the files promise of their order (`WITH ORDER`) holds of these, too.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Rows of most tables.
const ROWS: u64 = 100;

/// Writes the tables below a folder that stands for the repository.
pub fn write_all(repository: &Path) -> Result<()> {
    let csv = repository.join("testing/data/csv");
    let data = repository.join("datafusion/core/tests/data");
    let orders = repository.join("datafusion/core/tests/tpch-csv");
    for folder in [&csv, &data, &data.join("partitioned_csv"), &orders] {
        fs::create_dir_all(folder)?;
    }
    write_orders(&orders)?;
    let many = many_types();
    let by_first = {
        let mut rows = many.clone();
        rows.sort_by(|a, b| a[0].cmp(&b[0]));
        rows
    };
    let names: Vec<String> = (1..=15).map(|column| format!("c{column}")).collect();
    let header = |columns: usize| names[..columns].join(",");
    let first = |rows: &[Row]| rows.iter().map(|row| row[..13].to_vec()).collect::<Vec<_>>();
    write(&csv.join("aggregate_test_100.csv"), &header(13), &first(&many))?;
    write(&csv.join("aggregate_test_100_with_dates.csv"), &header(15), &many)?;
    write(&data.join("aggregate_test_100_order_by_c1_asc.csv"), &header(13), &first(&by_first))?;
    write(&data.join("window_1.csv"), "ts,inc_col,desc_col", &window_1())?;
    write(&data.join("window_2.csv"), "a0,a,b,c,d", &window_2())?;
    write(&data.join("aggregate_simple.csv"), &header(3), &simple())?;
    let piped = simple().into_iter().map(|row| vec![row.join("|")]).collect::<Vec<_>>();
    write(&data.join("aggregate_simple_pipe.csv"), "c1|c2|c3", &piped)?;
    write(
        &data.join("aggregate_agg_multi_order.csv"),
        &header(3),
        &ordered(10, |row| [row, row % 5, 10 - row]),
    )?;
    write(&data.join("convert_first_last.csv"), &header(3), &ordered(10, |row| [row, 10 - row, 2 * row]))?;
    write(&data.join("decimal_data.csv"), &header(5), &decimals())?;
    write(&data.join("null_cases.csv"), &header(3), &nulls())?;
    write(&data.join("int_to_float_cast_precision.csv"), "k,v", &beyond_floats())?;
    write(&data.join("example.csv"), "a,b,c", &ordered(2, |row| [row + 1, row + 2, row + 3]))?;
    fs::write(
        data.join("timestamps.csv"),
        "Jorge,2018-12-13T12:12:10.011\nAndrew,2018-11-13T17:11:10.011\n",
    )?;
    fs::write(data.join("empty.csv"), "")?;
    for part in 0..4 {
        let rows = ordered(11, |row| [part, row, row % 2]);
        let rows = rows.into_iter().map(|row| format!("{},{},{}\n", row[0], row[1], row[2] == "0"));
        let path = data.join(format!("partitioned_csv/partition-{part}.csv"));
        fs::write(path, rows.collect::<String>())?;
    }
    Ok(())
}

/// Customers, their orders, what was ordered, and parts, as in TPC-H; few enough that keys meet.
fn write_orders(folder: &Path) -> Result<()> {
    let mut numbers = Numbers(5);
    let mut pick = |values: &[&str]| values[numbers.below(values.len() as u64) as usize].to_string();
    let modes = ["AIR", "REG AIR", "AIR REG", "MAIL"];
    let brands = ["Brand#12", "Brand#23", "Brand#34"];
    let containers = ["SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE", "LG BOX"];
    let words: Vec<[String; 6]> = (0..ROWS)
        .map(|_| {
            let statuses = [pick(&["F", "O", "P"]), pick(&["A", "N", "R"]), pick(&modes)];
            let [status, flag, mode] = statuses;
            [
                status,
                flag,
                mode,
                pick(&brands),
                pick(&containers),
                pick(&["AUTOMOBILE", "BUILDING", "MACHINERY"]),
            ]
        })
        .collect();
    let mut cents = |limit: u64| format!("{}.{:02}", numbers.below(limit), numbers.below(100));
    let date = |row: u64| format!("199{}-{:02}-{:02}", row % 8, 1 + row % 12, 1 + row % 28);
    let (mut customers, mut orders, mut lines, mut parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (row, [status, flag, mode, brand, container, segment]) in (0u64..).zip(&words) {
        let (phone, customer, part) = (row % 25 + 10, row % 40 + 1, row % 20 + 1);
        customers.push(format!(
            "{},Customer#{row},Street {row},{},{phone}-1,{},{segment},",
            row + 1,
            row % 25,
            cents(9000)
        ));
        orders.push(format!(
            "{},{customer},{status},{},{},1-URGENT,Clerk#{part},0,",
            row / 2 * 3 + 1,
            cents(90000),
            date(row)
        ));
        lines.push(format!(
            "{},{part},{},{},{},{},0.0{},0.0{},{flag},{status},{},{},{},DELIVER IN PERSON,{mode},",
            row / 4 * 3 + 1,
            row % 10,
            row % 4 + 1,
            cents(50),
            cents(9000),
            row % 9,
            row % 7,
            date(row),
            date(row + 3),
            date(row + 5),
        ));
        parts.push(format!(
            "{},part {row},Manufacturer#1,{brand},STANDARD TIN,{},{container},{},",
            row / 3 + 1,
            row % 50,
            cents(900)
        ));
    }
    let rows = |lines: Vec<String>| lines.into_iter().map(|line| vec![line]).collect::<Vec<_>>();
    write(
        &folder.join("customer.csv"),
        "c_custkey,c_name,c_address,c_nationkey,c_phone,c_acctbal,c_mktsegment,c_comment",
        &rows(customers),
    )?;
    write(
        &folder.join("orders.csv"),
        "o_orderkey,o_custkey,o_orderstatus,o_totalprice,o_orderdate,o_orderpriority,o_clerk,o_shippriority,o_comment",
        &rows(orders),
    )?;
    write(
        &folder.join("lineitem.csv"),
        "l_orderkey,l_partkey,l_suppkey,l_linenumber,l_quantity,l_extendedprice,l_discount,l_tax,l_returnflag,l_linestatus,\
         l_shipdate,l_commitdate,l_receiptdate,l_shipinstruct,l_shipmode,l_comment",
        &rows(lines),
    )?;
    write(
        &folder.join("part.csv"),
        "p_partkey,p_name,p_mfgr,p_brand,p_type,p_size,p_container,p_retailprice,p_comment",
        &rows(parts),
    )
}

type Row = Vec<String>;

fn write(path: &Path, header: &str, rows: &[Row]) -> Result<()> {
    let lines = rows.iter().map(|row| row.join(",") + "\n");
    Ok(fs::write(path, format!("{header}\n{}", lines.collect::<String>()))?)
}

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Text of few values, small and large integers of every width, floats, unique text, dates and times.
fn many_types() -> Vec<Row> {
    let mut numbers = Numbers(1);
    let fraction = |number: u64| (number >> 11) as f64 / (1u64 << 53) as f64;
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let row = |_| {
        let text = (0..30).map(|_| letters[numbers.below(letters.len() as u64) as usize] as char).collect();
        vec![
            char::from(b'a' + numbers.below(5) as u8).to_string(),
            (1 + numbers.below(5)).to_string(),
            (numbers.next() as i8).to_string(),
            (numbers.next() as i16).to_string(),
            (numbers.next() as i32).to_string(),
            (numbers.next() as i64).to_string(),
            (numbers.next() as u8).to_string(),
            (numbers.next() as u16).to_string(),
            (numbers.next() as u32).to_string(),
            numbers.next().to_string(),
            (fraction(numbers.next()) as f32).to_string(),
            fraction(numbers.next()).to_string(),
            text,
            format!("2{:03}-{:02}-{:02}", numbers.below(100), 1 + numbers.below(12), 1 + numbers.below(28)),
            format!(
                "2022-{:02}-{:02}T{:02}:30:00",
                1 + numbers.below(12),
                1 + numbers.below(28),
                numbers.below(24)
            ),
        ]
    };
    (0..ROWS).map(row).collect()
}

/// Ordered by the first and second column ascending, and by the third descending.
fn window_1() -> Vec<Row> {
    let mut numbers = Numbers(2);
    let (mut time, mut up, mut down) = (264, 1, 100);
    let row = |_| {
        time += 1 + numbers.below(10);
        up += 1 + numbers.below(5);
        down = i64::saturating_sub(down, 1 + numbers.below(5) as i64);
        vec![time.to_string(), up.to_string(), down.to_string()]
    };
    (0..ROWS).map(row).collect()
}

/// Ordered by `a, b, c` and by `c`; `a0` is one value, `d` has five in no order.
fn window_2() -> Vec<Row> {
    let mut numbers = Numbers(3);
    let row =
        |row: u64| [1, row / 50, row / 25, row, numbers.below(5)].map(|value| value.to_string()).to_vec();
    (0..ROWS).map(row).collect()
}

/// The value `i` stands there `i` times.
fn simple() -> Vec<Row> {
    let rows = (1..=5).flat_map(|value| (0..value).map(move |_| value));
    let row = |value: u64| {
        vec![format!("0.0000{value}"), format!("0.00000000000{value}"), (value % 2 == 1).to_string()]
    };
    rows.map(row).collect()
}

fn decimals() -> Vec<Row> {
    let rows = (1..=5).flat_map(|value| (0..value).map(move |copy| (value, copy)));
    let row = |(value, copy): (u64, u64)| {
        vec![
            format!("0.0000{value}"),
            format!("0.00000000000{value}"),
            value.to_string(),
            (value % 2 == 1).to_string(),
            format!("0.000{value}{copy}"),
        ]
    };
    rows.map(row).collect()
}

/// Integers of few values, floats and integers, of which some are absent.
fn nulls() -> Vec<Row> {
    let mut numbers = Numbers(4);
    let mut value = |limit| match numbers.below(8) {
        0 => String::new(),
        _ => numbers.below(limit).to_string(),
    };
    (0..ROWS).map(|row| vec![value(10), value(90), row.to_string()]).collect()
}

/// Integers that are one value as a 32-bit float, ordered by the second column and the first, descending.
fn beyond_floats() -> Vec<Row> {
    (0..6u64).map(|row| vec![(row % 2 * 5 + 6 - row).to_string(), (16_777_220 - row).to_string()]).collect()
}

fn ordered(rows: u64, row: impl Fn(u64) -> [u64; 3]) -> Vec<Row> {
    (0..rows).map(|number| row(number).map(|value| value.to_string()).to_vec()).collect()
}
