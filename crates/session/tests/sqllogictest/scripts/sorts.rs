//! Orders by every type, direction and place of NULLs; the first rows; limits and offsets.

use super::{BOOLEAN, Script, TYPES, Type};

const DIRECTIONS: [&str; 4] = ["ASC NULLS LAST", "ASC NULLS FIRST", "DESC NULLS FIRST", "DESC NULLS LAST"];

pub fn scripts() -> Vec<Script> {
    vec![by_type(), several_keys(), limits()]
}

fn by_type() -> Script {
    let mut script = Script::new("sort_types", "Orders by a column of every type.");
    for data_type in TYPES.iter().chain([&BOOLEAN]) {
        let Type { name, sql, values: [a, b, c, d, e, f] } = data_type;
        script.comment(format!("{sql}."));
        let keys = [d, a, &"NULL", f, b, d, c, &"NULL", e, a];
        let rows: Vec<String> = keys.iter().enumerate().map(|(i, k)| format!("{k}, {i}")).collect();
        script.table(name, &format!("k {sql}, n INT NOT NULL"), &rows);
        for direction in DIRECTIONS {
            script.ordered(format!("SELECT k, n FROM {name} ORDER BY k {direction}, n"));
        }
        script.ordered(format!("SELECT n, k FROM {name} ORDER BY k, n DESC"));
        script.ordered(format!("SELECT n FROM {name} ORDER BY k DESC, n LIMIT 3"));
        script.ordered(format!("SELECT k FROM {name} ORDER BY k NULLS FIRST LIMIT 4"));
        script.ordered(format!("SELECT n, k FROM {name} WHERE n > 1 ORDER BY k, n LIMIT 3 OFFSET 2"));
        script.ordered(format!("SELECT DISTINCT k FROM {name} ORDER BY k DESC NULLS LAST LIMIT 4"));
    }
    script
}

fn several_keys() -> Script {
    let mut script = Script::new("sort_several_keys", "Orders by two and three keys, and by expressions.");
    let rows: Vec<String> = (0..16)
        .map(|i| {
            let a = ["1", "2", "NULL", "1"][i % 4];
            let s = ["'b'", "'a'", "'ab'", "NULL", "''"][i % 5];
            let d = ["0.5", "-0.5", "NULL"][i % 3];
            let day = ["'1969-12-31'", "'1970-01-01'", "NULL", "'2024-02-29'"][i / 4];
            format!("{a}, {s}, {d}, {day}, {i}")
        })
        .collect();
    script.table("t", "a INT, s VARCHAR, d DECIMAL(5, 2), day DATE, n INT NOT NULL", &rows);
    let keys = ["a", "s", "d", "day"];
    for (i, first) in keys.iter().enumerate() {
        for (j, second) in keys.iter().enumerate().filter(|(j, _)| *j != i) {
            let (x, y) = (DIRECTIONS[(i + j) % 4], DIRECTIONS[(i * 2 + j * 3) % 4]);
            script
                .ordered(format!("SELECT {first}, {second}, n FROM t ORDER BY {first} {x}, {second} {y}, n"));
            script.ordered(format!("SELECT n FROM t ORDER BY {second} {y}, {first} {x}, n DESC LIMIT 5"));
        }
    }
    for sql in [
        "SELECT n FROM t ORDER BY a + n DESC NULLS LAST, n",
        "SELECT n, s FROM t ORDER BY character_length(s), s, n",
        "SELECT n FROM t ORDER BY s IS NULL, d IS NULL, n",
        "SELECT n FROM t ORDER BY CASE WHEN s = 'a' THEN 0 ELSE 1 END, n DESC LIMIT 6",
        "SELECT a, count(*) FROM t GROUP BY a ORDER BY count(*) DESC, a",
        "SELECT n FROM t ORDER BY n % 3, d DESC NULLS LAST, s NULLS FIRST, n",
        "SELECT n AS x FROM t ORDER BY x DESC LIMIT 1",
        "SELECT a, n FROM (SELECT a, n FROM t ORDER BY n DESC LIMIT 5) q ORDER BY a NULLS FIRST, n",
        "SELECT day, s, n FROM t ORDER BY 1 DESC NULLS LAST, 2 NULLS FIRST, 3",
    ] {
        script.ordered(sql);
    }
    script
}

fn limits() -> Script {
    let mut script = Script::new("limits", "LIMIT and OFFSET.");
    let rows: Vec<String> = (0..12).map(|i| format!("{i}, {}", i % 4)).collect();
    script.table("t", "n INT NOT NULL, g INT", &rows);
    script.table("e", "n INT, g INT", &[]);
    for (limit, offset) in
        [(0, 0), (1, 0), (5, 0), (12, 0), (100, 0), (3, 2), (5, 10), (5, 12), (5, 100), (0, 5)]
    {
        script.ordered(format!("SELECT n FROM t ORDER BY n DESC LIMIT {limit} OFFSET {offset}"));
        script.ordered(format!("SELECT n FROM t WHERE g > 1 ORDER BY n LIMIT {limit} OFFSET {offset}"));
        script.query(format!("SELECT count(*) FROM (SELECT n FROM t LIMIT {limit} OFFSET {offset}) q"));
        script.query(format!(
            "SELECT count(*) FROM (SELECT n FROM t WHERE g = 2 LIMIT {limit} OFFSET {offset}) q"
        ));
        script.ordered(format!(
            "SELECT g, count(*) FROM t GROUP BY g ORDER BY g LIMIT {limit} OFFSET {offset}"
        ));
        script.query(format!("SELECT n FROM e LIMIT {limit} OFFSET {offset}"));
    }
    for sql in [
        "SELECT n FROM t ORDER BY n OFFSET 9",
        "SELECT n FROM t ORDER BY n OFFSET 20",
        "SELECT n FROM (SELECT n FROM t ORDER BY n LIMIT 6) q ORDER BY n DESC LIMIT 2",
        "SELECT n FROM (SELECT n FROM t ORDER BY n LIMIT 6 OFFSET 3) q WHERE n > 4 ORDER BY n",
        "SELECT n FROM (SELECT n FROM t ORDER BY n DESC LIMIT 3) q UNION ALL SELECT 100 ORDER BY n",
        "SELECT a.n FROM (SELECT n FROM t ORDER BY n LIMIT 4) a JOIN (SELECT n FROM t ORDER BY n DESC LIMIT 10) b ON a.n = b.n ORDER BY a.n",
    ] {
        script.ordered(sql);
    }
    script
}
