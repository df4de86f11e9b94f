//! The two sides of joins, and what a nested loop gives.

use crate::common::*;

/// A row: an integer key, a text key, a number. The table has a fourth column, a decimal of more than 64 bits that follows
/// from the integer key.
pub type Row = (Option<i64>, Option<String>, i32);

pub fn table(rows: &[Row]) -> Arc<dyn TableSource> {
    Arc::new(Table(vec![batch(rows)]))
}

pub fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        maybe_longs(rows.iter().map(|row| row.0)),
        maybe_texts(rows.iter().map(|row| row.1.clone())),
        ints(rows.iter().map(|row| row.2)),
        decimals(rows.iter().map(|row| wide(row.0)), 38, 0),
    ];
    batch_of(&COLUMNS, columns)
}

pub const COLUMNS: [Column; 4] = [
    ("k", DataType::Int64, true),
    ("t", DataType::Utf8, true),
    ("v", DataType::Int32, false),
    ("w", WIDE, true),
];

pub fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn wide(key: Option<i64>) -> Option<i128> {
    key.map(|key| i128::from(key) * 100_000_000_000_000_000 + 7)
}

const WIDE: DataType = DataType::Decimal128 { precision: 38, scale: 0 };

/// How keys are spread over `count` rows.
#[derive(Debug, Clone, Copy)]
pub enum Spread {
    /// 0, 1, 2, …: direct-addressed, unique.
    Dense,
    /// The same, but that one of them is missing and another there twice: as many rows as slots.
    NearlyDense,
    /// Far apart, and unique: hashed.
    Sparse,
    /// Few values, many NULLs.
    Duplicates,
    /// As few, but far apart.
    SparseDuplicates,
    /// One value.
    One,
    /// Nine of ten rows have one value, and no other row has a key that is not its own; far apart.
    Skewed,
    /// The same, close together.
    DenseSkewed,
}

/// A value that is far from that of the next index.
fn far(index: usize) -> i64 {
    (index as i64).wrapping_mul(0x0123_4567_89ab_cdef)
}

pub fn rows(count: usize, spread: Spread, salt: usize) -> Vec<Row> {
    let row = |index: usize| {
        let index = (index * 7 + salt) % count.max(1);
        let key = match spread {
            Spread::Dense => Some(index as i64 - 3),
            Spread::NearlyDense => Some(if index == 5 { 6 } else { index } as i64 - 3),
            Spread::Sparse => Some(far(index)),
            Spread::Duplicates => (!index.is_multiple_of(4)).then_some((index % 5) as i64),
            Spread::SparseDuplicates => (!index.is_multiple_of(4)).then_some(far(index % 5)),
            Spread::One => Some(42),
            Spread::Skewed if index.is_multiple_of(10) => Some(far(index)),
            Spread::DenseSkewed if index.is_multiple_of(10) => Some(index as i64),
            Spread::Skewed | Spread::DenseSkewed => Some(1),
        };
        let text = key.filter(|_| !index.is_multiple_of(9)).map(|key| format!("ключ {key}"));
        (key, text, (index % 10) as i32)
    };
    (0..count).map(row).collect()
}

/// The key columns, and whether there is the residual condition `build.v < probe.v`.
#[derive(Debug, Clone, Copy)]
pub struct Condition {
    pub keys: &'static [usize],
    pub residual: bool,
    pub null_equal: bool,
}

pub fn column(index: usize) -> Expr {
    let (_, data_type, nullable) = COLUMNS[index % COLUMNS.len()].clone();
    Expr::column(index, data_type, nullable)
}

pub fn plan(kind: JoinKind, condition: Condition, null_aware: bool) -> Plan {
    let residual = condition.residual.then(|| compare(CompareOp::Lt, column(2), column(6)));
    let join = join_by(kind, condition);
    Plan::Join(Box::new(Join { residual, null_aware, ..join }))
}

/// A join with any condition besides.
pub fn plan_where(kind: JoinKind, condition: Condition, residual: Expr) -> Plan {
    Plan::Join(Box::new(Join { residual: Some(residual), ..join_by(kind, condition) }))
}

fn join_by(kind: JoinKind, condition: Condition) -> Join {
    let keys = condition.keys.iter().map(|key| (column(*key), column(*key))).collect();
    Join { null_equal: condition.null_equal, ..join_of(kind, scan(0), scan(1), keys) }
}

fn matches(condition: Condition, build: &Row, probe: &Row) -> bool {
    fn equal<T: PartialEq>(a: &Option<T>, b: &Option<T>, null_equal: bool) -> bool {
        if a.is_none() || b.is_none() { null_equal && a.is_none() && b.is_none() } else { a == b }
    }
    condition.keys.iter().all(|key| match key {
        0 | 3 => equal(&build.0, &probe.0, condition.null_equal),
        _ => equal(&build.1, &probe.1, condition.null_equal),
    }) && (!condition.residual || build.2 < probe.2)
}

fn show(row: Option<&Row>) -> String {
    fn or_null(value: Option<impl ToString>) -> String {
        value.map_or("-".into(), |value| value.to_string())
    }
    match row {
        Some((k, t, v)) => [or_null(*k), or_null(t.as_ref()), v.to_string(), or_null(wide(*k))].join("|"),
        None => "-|-|-|-".into(),
    }
}

/// The rows that a nested loop gives, as text, sorted.
pub fn expected(kind: JoinKind, condition: Condition, build: &[Row], probe: &[Row]) -> Vec<String> {
    pairs_of(kind, &|b, p| matches(condition, b, p), (build, probe))
}

/// The same where pairs are also to have something else, which is true, false or NULL of them.
pub fn expected_where(
    kind: JoinKind,
    condition: Condition,
    holds: fn(&Row, &Row) -> Option<bool>,
    sides: (&[Row], &[Row]),
) -> Vec<String> {
    pairs_of(kind, &|b, p| matches(condition, b, p) && holds(b, p) == Some(true), sides)
}

fn pairs_of(
    kind: JoinKind,
    hit: &dyn Fn(&Row, &Row) -> bool,
    (build, probe): (&[Row], &[Row]),
) -> Vec<String> {
    use JoinKind::*;
    let mut out = Vec::new();
    if let Inner | BuildOuter | ProbeOuter | FullOuter = kind {
        for b in build {
            for p in probe.iter().filter(|p| hit(b, p)) {
                out.push(format!("{}|{}", show(Some(b)), show(Some(p))));
            }
        }
    }
    for b in build {
        let matched = probe.iter().any(|p| hit(b, p));
        match kind {
            BuildOuter | FullOuter if !matched => out.push(format!("{}|{}", show(Some(b)), show(None))),
            BuildSemi if matched => out.push(show(Some(b))),
            BuildAnti if !matched => out.push(show(Some(b))),
            BuildMark => out.push(format!("{}|{matched}", show(Some(b)))),
            _ => {}
        }
    }
    for p in probe {
        let matched = build.iter().any(|b| hit(b, p));
        match kind {
            ProbeOuter | FullOuter if !matched => out.push(format!("{}|{}", show(None), show(Some(p)))),
            ProbeSemi if matched => out.push(show(Some(p))),
            ProbeAnti if !matched => out.push(show(Some(p))),
            ProbeMark => out.push(format!("{}|{matched}", show(Some(p)))),
            _ => {}
        }
    }
    out.sort();
    out
}
