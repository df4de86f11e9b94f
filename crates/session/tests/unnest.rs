//! Lists that become rows: of files and of tables in memory, with NULL and empty lists, several side by side, beside joins, filters and
//! expressions over elements; and functions of lists as columns.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, LargeListArray, ListArray, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

const ROWS: i64 = 12_000;

/// `t(id, k, s, tags, nums, more, pairs)`.
fn rows() -> RecordBatch {
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in 0..ROWS {
        for place in 0..row % 5 {
            let tag = ["river", "stone", "", "über", "light"][((row * 7 + place) % 5) as usize];
            tags.values().append_option((row % 11 != place).then_some(tag));
        }
        tags.append(row % 13 != 3);
    }
    let numbers = |factor: i64, most: i64| {
        (0..ROWS).map(move |row| {
            let numbers =
                (0..row * factor % most).map(move |place| (place != 2).then_some(row % 100 + place));
            (row % 17 != 5).then(|| numbers.collect::<Vec<_>>())
        })
    };
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS)), false),
        ("k", Arc::new((0..ROWS).map(|row| (row % 7 != 2).then_some(row % 9)).collect::<Int64Array>()), true),
        (
            "s",
            Arc::new((0..ROWS).map(|row| Some(format!("tëxt {}", row % 300))).collect::<StringArray>()),
            true,
        ),
        ("tags", Arc::new(tags.finish()), true),
        ("nums", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers(3, 8))), true),
        ("more", Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(numbers(5, 6))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

struct Data {
    folder: TempDir,
    rows: RecordBatch,
}

impl Data {
    fn new() -> Data {
        let (folder, rows) = (TempDir::new().unwrap(), rows());
        let file = fs::File::create(folder.path().join("t.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let lines = (0..ROWS).map(|row| {
            let items: Vec<String> = (0..row % 4)
                .map(|i| format!(r#"{{"name": "i{}", "price": {}.5}}"#, (row + i) % 6, row % 50))
                .collect();
            format!("{{\"id\": {row}, \"items\": [{}]}}\n", items.join(", "))
        });
        fs::write(folder.path().join("orders.json"), lines.collect::<String>()).unwrap();
        Data { folder, rows }
    }

    async fn session(&self, settings: &[(&str, &str)]) -> KelpieSession {
        let options = SessionOptions::default().with("kelpie.min_rows", "0").with("kelpie.fallback", "allow");
        let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
        let session = KelpieSession::new(options).unwrap();
        session.register_dir(self.folder.path()).await.unwrap();
        let batches =
            (0..ROWS as usize).step_by(700).map(|at| self.rows.slice(at, 700.min(ROWS as usize - at)));
        let table = MemTable::try_new(self.rows.schema(), vec![batches.collect()]).unwrap();
        session.context().register_table("m", Arc::new(table)).unwrap();
        session
    }
}

fn text(batches: &[RecordBatch]) -> String {
    pretty_format_batches(batches).unwrap().to_string()
}

const COMPILED: &[&str] = &[
    "select unnest(tags) tag, count(*), min(id), max(s) from t group by tag order by tag",
    "select tag, count(*), sum(id) from t, unnest(tags) as u(tag) group by tag order by tag",
    "select tag, k, count(*) from t cross join unnest(t.tags) as u(tag) where k > 3 and id % 2 = 0 group by tag, k order by tag, k",
    "select count(*) from t, unnest(tags) as u(tag) where tag like '%r' or tag is null",
    "select count(*) from (select unnest(tags) from t)",
    "select upper(tag) x, count(*) from (select unnest(tags) tag, id from t where id > 500) where id < 9000 group by x order by x",
    "select md5(tag) x, count(*) from (select unnest(tags) tag from t) group by x order by x",
    "select n, m, count(*) from (select unnest(nums) n, unnest(more) m from t) group by n, m order by n, m limit 50",
    "select n % 10 x, sum(n), count(n), count(*) from (select unnest(nums) n from m) group by x order by x",
    "select sum(n) from m, unnest(more) as u(n)",
    "select w, count(*) from (select unnest(string_to_array(s, ' ')) w from t) group by w order by w limit 20",
    "select a.tag, count(*) from (select id, unnest(tags) tag from t) a join (select id, k from m where k < 4) b on a.id = b.id group by a.tag order by 1",
    "select tag, row_number() over (order by count(*) desc, tag) r from t, unnest(tags) as u(tag) group by tag order by r",
    "select i.name, count(*), sum(i.price) from (select unnest(items) i from orders) group by 1 order by 1",
    "select tag, count(*) from (select unnest_outer(tags) tag from t) group by tag order by tag",
    "select len(tags) n, count(*) from t group by n order by n",
    "select count(*), sum(id) from t where list_contains(tags, 'river')",
    "select tags[1] x, count(*) from t where nums is not null group by x order by x",
];

#[tokio::test(flavor = "multi_thread")]
async fn elements_are_rows_of_a_table() {
    let data = Data::new();
    let operators = data.session(&[("kelpie.enabled", "false")]).await;
    for device in ["cpu", "simt"] {
        let session = data.session(&[("kelpie.device", device)]).await;
        for sql in COMPILED {
            let expected = text(&operators.sql(sql).await.unwrap().batches);
            for run in 0..2 {
                let found = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                assert_eq!(text(&found.batches), expected, "{device} {run}: {sql}");
                assert!(found.timing.reasons.is_empty(), "{sql}: {:#?}", found.timing.reasons);
            }
        }
    }
}

/// What is made of few rows, or of rows around an outer join, is DataFusion's; so are lists that only the result has.
#[tokio::test(flavor = "multi_thread")]
async fn other_lists_are_left_to_datafusion() {
    let data = Data::new();
    let operators = data.session(&[("kelpie.enabled", "false")]).await;
    let session = data.session(&[("kelpie.device", "cpu")]).await;
    for sql in [
        "select unnest(tags) from t where id = 77",
        "select unnest(tags), id from t order by id, 1 limit 5",
        "select id, tags from t where id % 1000 = 4 order by id",
        "select count(*), count(tags) from t",
        "select tags, count(*) from t group by tags order by count(*) desc, tags limit 3",
        "select x, count(*) from (select unnest(b.tags) x from t a left join t b on a.id = b.id + 5000) group by x order by x",
        "select unnest(n) x, count(*) from (select unnest([nums, [1, null]]) n from t) group by x order by x limit 5",
        "select t.id, u.tag from t left join lateral (select unnest(t.tags) tag) u on true where t.id < 20 order by 1, 2",
    ] {
        let expected = text(&operators.sql(sql).await.unwrap().batches);
        let found = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(text(&found.batches), expected, "{sql}");
    }
}
