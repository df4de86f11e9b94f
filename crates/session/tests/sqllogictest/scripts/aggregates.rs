//! Every aggregate by type, NULLs, groups, FILTER and DISTINCT; groups by every type of key.

use super::{BOOLEAN, Script, TYPES, Type};

pub fn scripts() -> Vec<Script> {
    let mut scripts: Vec<Script> = TYPES.iter().chain([&BOOLEAN]).map(of_a_type).collect();
    scripts.push(keys());
    scripts.push(shapes());
    scripts
}

/// The aggregates that a type has, as patterns.
fn aggregates(name: &str) -> Vec<&'static str> {
    let mut all = vec!["count({})", "count(DISTINCT {})", "min({})", "max({})"];
    match name {
        "boolean" => all.extend(["bool_and({})", "bool_or({})"]),
        "date" | "timestamp" | "varchar" => {}
        // The sum of its values does not fit.
        "decimal38" => {
            all.extend(["sum(CASE WHEN abs({}) < 2 THEN {} END)", "avg(CASE WHEN abs({}) < 2 THEN {} END)"])
        }
        // The mean of its extremes depends on the order of the rows.
        "bigint" | "ubigint" => all.extend(["sum({})", "sum(DISTINCT {})", "avg({} % 1000)"]),
        "double" | "decimal" => all.extend(["sum({})", "sum(DISTINCT {})", "avg({})"]),
        _ => all.extend([
            "sum({})", "sum(DISTINCT {})", "avg({})", "stddev({})", "stddev_pop({})", "var_samp({})",
            "var_pop({})",
        ]),
    }
    all
}

/// `t` has duplicates and NULLs in five groups, one of NULLs alone and one whose key is NULL.
fn of_a_type(data_type: &Type) -> Script {
    let about = format!("Aggregates of columns of type {}.", data_type.sql);
    let mut script = Script::new(format!("aggregate_{}", data_type.name), about);
    let [a, b, c, d, e, f] = data_type.values;
    let rows: Vec<String> = [
        ("1", a),
        ("1", c),
        ("2", b),
        ("2", b),
        ("2", "NULL"),
        ("3", "NULL"),
        ("3", "NULL"),
        ("NULL", d),
        ("NULL", c),
        ("4", d),
        ("1", e),
        ("4", f),
        ("2", e),
    ]
    .iter()
    .enumerate()
    .map(|(i, (g, x))| format!("{g}, {x}, {}", i + 1))
    .collect();
    let columns = format!("g INT, x {}, n INT", data_type.sql);
    script.table("t", &columns, &rows);
    script.table("e", &columns, &[]);
    for aggregate in aggregates(data_type.name) {
        let of_x = aggregate.replace("{}", "x");
        script.comment(format!("{of_x}."));
        script.query(format!("SELECT {of_x} FROM t"));
        script.query(format!("SELECT {of_x} FROM e"));
        script.query(format!("SELECT g, {of_x} FROM t GROUP BY g"));
        script.query(format!("SELECT g, {of_x} FROM e GROUP BY g"));
        script.query(format!("SELECT {of_x} FROM t WHERE g = 3"));
        script.query(format!("SELECT g, {of_x} FILTER (WHERE n > 2), count(*) FROM t GROUP BY g"));
        script.query(format!("SELECT {of_x} FILTER (WHERE n > 100) FROM t"));
    }
    script.comment("Several at once, and as conditions.");
    script.query("SELECT g, min(x), max(x), count(x), count(*), min(n) FROM t GROUP BY g");
    script.query("SELECT g, count(DISTINCT x), count(DISTINCT n), sum(n) FROM t GROUP BY g");
    script.query("SELECT g FROM t GROUP BY g HAVING min(x) = max(x)");
    script.query("SELECT x, count(*), sum(n) FROM t GROUP BY x");
    script.query("SELECT x, g, count(*) FROM t GROUP BY x, g");
    script.query("SELECT DISTINCT x FROM t");
    script.query("SELECT count(*) FROM (SELECT x FROM t GROUP BY x) q");
    script
}

/// Pairs of keys of different types.
fn keys() -> Script {
    let mut script = Script::new("group_keys", "Groups by keys of two and more types.");
    let types: Vec<&Type> = TYPES.iter().chain([&BOOLEAN]).collect();
    let names: Vec<String> = types.iter().map(|t| format!("c_{}", t.name)).collect();
    let columns: Vec<String> =
        types.iter().zip(&names).map(|(t, name)| format!("{name} {}", t.sql)).collect();
    // Row i takes value i / (column + 1) of six, or NULL.
    let row = |i: usize| {
        let values = types.iter().enumerate().map(|(column, t)| match (i * 7 + column * 3) % 11 {
            0 => "NULL",
            v => t.values[(v + i / (column + 1)) % 6],
        });
        format!("{i}, {}", values.collect::<Vec<_>>().join(", "))
    };
    let rows: Vec<String> = (0..18).map(row).collect();
    script.table("t", &format!("n INT NOT NULL, {}", columns.join(", ")), &rows);
    for (i, name) in names.iter().enumerate() {
        let other = &names[(i * 5 + 3) % names.len()];
        let third = &names[(i * 3 + 7) % names.len()];
        script.query(format!("SELECT {name}, count(*), sum(n), min({other}) FROM t GROUP BY {name}"));
        if other != name {
            script.query(format!("SELECT {name}, {other}, count(*), max(n) FROM t GROUP BY {name}, {other}"));
            script.query(format!("SELECT DISTINCT {name}, {other} FROM t WHERE n < 12"));
        }
        if other != name && third != name && third != other {
            script.query(format!(
                "SELECT {name}, {other}, {third}, sum(n) FROM t GROUP BY {name}, {other}, {third} HAVING sum(n) > 3"
            ));
        }
    }
    script
}

fn shapes() -> Script {
    let mut script = Script::new("aggregate_shapes", "Aggregates beside other operators.");
    let rows: Vec<String> = (0..24)
        .map(|i| {
            let s = ["'red'", "'green'", "NULL", "'blue green'"][i % 4];
            let d = if i % 5 == 0 { "NULL".into() } else { format!("{}.{:02}", i as i64 - 12, i * 4) };
            format!("{i}, {}, {s}, {d}, DATE '2024-01-01' + INTERVAL '{}' DAY", i % 3, i * 17)
        })
        .collect();
    script.table("t", "n INT NOT NULL, g INT NOT NULL, s VARCHAR, d DECIMAL(15, 2), day DATE", &rows);
    for sql in [
        "SELECT count(*) FROM t",
        "SELECT count(*), sum(d), avg(d), min(s), max(day) FROM t WHERE n > 100",
        "SELECT sum(d * (1 - d)), sum(d * d), avg(d * 2) FROM t",
        "SELECT g, sum(CASE WHEN s LIKE '%green' THEN d ELSE 0 END) FROM t GROUP BY g",
        "SELECT s, sum(n) / count(*), sum(n) % 7 FROM t GROUP BY s",
        "SELECT date_part('month', day), count(*) FROM t GROUP BY date_part('month', day)",
        "SELECT date_trunc('quarter', day), sum(n) FROM t GROUP BY 1",
        "SELECT substr(s, 1, 2), count(*) FROM t GROUP BY substr(s, 1, 2)",
        "SELECT n % 4, g, count(*) FROM t GROUP BY n % 4, g",
        "SELECT s IS NULL, count(*) FROM t GROUP BY s IS NULL",
        "SELECT character_length(s), max(n) FROM t GROUP BY 1",
        "SELECT g, count(*) FROM t WHERE s IS NOT NULL GROUP BY g HAVING count(*) > 5 AND sum(n) > 10",
        "SELECT g, max(total) FROM (SELECT g, s, sum(n) AS total FROM t GROUP BY g, s) q GROUP BY g",
        "SELECT count(*), sum(total) FROM (SELECT s, sum(n) AS total FROM t GROUP BY s HAVING sum(n) > 60) q",
        "SELECT g + 1, sum(n) FROM t GROUP BY g",
        "SELECT sum(n) FROM t GROUP BY g",
        "SELECT sum(DISTINCT g), count(DISTINCT g), count(DISTINCT s), sum(g) FROM t",
        "SELECT s, count(DISTINCT g), sum(DISTINCT n % 5), count(*) FROM t GROUP BY s",
        "SELECT g, count(DISTINCT s) FILTER (WHERE n > 3), count(s) FILTER (WHERE d > 0) FROM t GROUP BY g",
        "SELECT g, bool_and(n > 1), bool_or(n > 22), bool_and(d > -100), bool_or(s = 'red') FROM t GROUP BY g",
        "SELECT bool_and(n > 1), bool_or(NULL) FROM t WHERE n > 100",
        "SELECT g, min(day), max(day), min(s), max(s) FROM t GROUP BY g",
        "SELECT min(s || 'x'), max(upper(s)) FROM t",
        "SELECT round(stddev(n), 6), round(var_pop(d), 6) FROM t",
        "SELECT g, round(stddev_pop(d), 6), round(var_samp(n), 6) FROM t WHERE n < 4 GROUP BY g",
        "SELECT avg(n), avg(d), avg(CAST(d + n AS DOUBLE)) FROM t",
        "SELECT g, s, count(*) FROM t GROUP BY GROUPING SETS ((g, s), (g), ())",
        "SELECT g, s, sum(n) FROM t GROUP BY ROLLUP (g, s)",
        "SELECT g, n % 2, sum(n) FROM t GROUP BY CUBE (g, n % 2)",
        "SELECT DISTINCT g, s FROM t",
        "SELECT DISTINCT g % 2 FROM t WHERE n > 5",
        "SELECT count(*) FROM (SELECT DISTINCT s, g FROM t) q",
        "SELECT DISTINCT count(*) FROM t GROUP BY s, g",
        "SELECT max(n) - min(n), count(*) * 2, sum(n) + sum(g) FROM t",
        "SELECT 1, 'x', count(*) FROM t GROUP BY g",
    ] {
        script.query(sql);
    }
    for sql in [
        "SELECT s, count(*) FROM t GROUP BY s ORDER BY s NULLS FIRST",
        "SELECT g, sum(n) FROM t GROUP BY g ORDER BY sum(n) DESC",
        "SELECT g, s, sum(d) FROM t GROUP BY g, s ORDER BY sum(d) DESC NULLS LAST, g, s LIMIT 4",
        "SELECT DISTINCT s FROM t ORDER BY s DESC NULLS LAST LIMIT 2",
        "SELECT n % 5 AS r, count(*) AS c FROM t GROUP BY r ORDER BY c DESC, r LIMIT 3 OFFSET 1",
    ] {
        script.ordered(sql);
    }
    script
}
