//! Every kind of join by type of key, NULLs, duplicates and residual conditions.

use super::{BOOLEAN, Script, TYPES, Type};

/// Kinds of join of `l`: `{r}` is the other table, `{on}` the condition.
const KINDS: [&str; 12] = [
    "SELECT l.k, v, {r}.k, w FROM l JOIN {r} ON {on}",
    "SELECT l.k, v, {r}.k, w FROM l LEFT JOIN {r} ON {on}",
    "SELECT l.k, v, {r}.k, w FROM l RIGHT JOIN {r} ON {on}",
    "SELECT l.k, v, {r}.k, w FROM l FULL JOIN {r} ON {on}",
    "SELECT k, v FROM l LEFT SEMI JOIN {r} ON {on}",
    "SELECT k, v FROM l LEFT ANTI JOIN {r} ON {on}",
    "SELECT k, w FROM l RIGHT SEMI JOIN {r} ON {on}",
    "SELECT k, w FROM l RIGHT ANTI JOIN {r} ON {on}",
    "SELECT k, v FROM l WHERE EXISTS (SELECT 1 FROM {r} WHERE {on})",
    "SELECT k, v FROM l WHERE NOT EXISTS (SELECT 1 FROM {r} WHERE {on})",
    "SELECT k, v FROM l WHERE v = 1 OR EXISTS (SELECT 1 FROM {r} WHERE {on})",
    "SELECT sum(v), sum(w), count(*) FROM l JOIN {r} ON {on}",
];

fn joined(kind: &str, right: &str, on: &str) -> String {
    kind.replace("{r}", right).replace("{on}", &on.replace("{r}", right))
}

pub fn scripts() -> Vec<Script> {
    let types =
        TYPES.iter().filter(|t| !["smallint", "usmallint", "utinyint", "decimal38"].contains(&t.name));
    let mut scripts: Vec<Script> = types.chain([&BOOLEAN]).map(keys_of_a_type).collect();
    scripts.push(keys_of_two_types());
    scripts.push(several_keys());
    scripts.push(shapes());
    scripts
}

/// `l` and `r` have duplicates and NULLs, `u` is unique, `e` empty, `n` has nothing but NULLs.
fn keys_of_a_type(key: &Type) -> Script {
    let mut script =
        Script::new(format!("join_{}", key.name), format!("Joins on a key of type {}.", key.sql));
    let [a, b, c, d, e, f] = key.values;
    let columns = |other: &str| format!("k {}, {other} INT", key.sql);
    let rows = |keys: &[&str]| -> Vec<String> {
        keys.iter().enumerate().map(|(i, k)| format!("{k}, {}", i + 1)).collect()
    };
    script.table("l", &columns("v"), &rows(&[a, b, b, c, "NULL", d, d, "NULL"]));
    script.table("r", &columns("w"), &rows(&[b, b, a, d, "NULL", e, d, "NULL"]));
    let unique: &[&str] = if key.name == "boolean" { &[a, d] } else { &[a, b, d, f] };
    script.table("u", &format!("k {} NOT NULL, w INT", key.sql), &rows(unique));
    script.table("e", &columns("w"), &[]);
    script.table("n", &columns("w"), &rows(&["NULL", "NULL"]));
    for (right, about) in [
        ("r", "Duplicates and NULLs on both sides."),
        ("u", "Unique keys on the right."),
        ("e", "An empty right side."),
        ("n", "Nothing but NULLs on the right."),
    ] {
        script.comment(about);
        for kind in &KINDS {
            script.query(joined(kind, right, "l.k = {r}.k"));
        }
        for operator in ["IN", "NOT IN"] {
            script.query(format!("SELECT k, v FROM l WHERE k {operator} (SELECT k FROM {right})"));
        }
    }
    script.comment("With a residual condition.");
    for kind in &KINDS {
        script.query(joined(kind, "r", "l.k = {r}.k AND v < w"));
    }
    script.query("SELECT k, v FROM l WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL AND r.w < 4)");
    script.comment("NULLs match.");
    for kind in &KINDS[..6] {
        script.query(joined(kind, "r", "l.k IS NOT DISTINCT FROM {r}.k"));
    }
    script.comment("Without an equality.");
    for (kind, on) in KINDS.iter().zip(["<", "<=", ">", ">=", "<>", "<"]) {
        script.query(joined(kind, "u", &format!("l.k {on} {{r}}.k")));
    }
    script
}

fn keys_of_two_types() -> Script {
    let mut script = Script::new("join_two_types", "Joins on keys of two types.");
    let pairs = [
        ("INT", "BIGINT", ["-1", "0", "7", "70000"]),
        ("TINYINT", "INT UNSIGNED", ["0", "1", "7", "100"]),
        ("INT", "DECIMAL(10, 2)", ["-1", "0", "7", "70000"]),
        ("SMALLINT", "DOUBLE", ["-1", "0", "7", "300"]),
        ("REAL", "DOUBLE", ["-1.5", "0.0", "0.25", "1000"]),
        ("DECIMAL(5, 2)", "DECIMAL(15, 4)", ["-1.5", "0", "0.25", "100"]),
        ("DECIMAL(10, 2)", "DOUBLE", ["-1.5", "0", "0.25", "100"]),
        ("DATE", "TIMESTAMP", ["'1969-12-31'", "'1970-01-01'", "'2000-02-29'", "'2024-12-31'"]),
    ];
    for (i, (left, right, values)) in pairs.iter().enumerate() {
        script.comment(format!("{left} and {right}."));
        let [a, b, c, d] = values;
        let rows = |keys: &[&str]| -> Vec<String> {
            keys.iter().enumerate().map(|(i, k)| format!("{k}, {}", i + 1)).collect()
        };
        script.table(&format!("l{i}"), &format!("k {left}, v INT"), &rows(&[a, b, b, "NULL", c]));
        script.table(&format!("r{i}"), &format!("k {right}, w INT"), &rows(&[b, d, "NULL", c, c]));
        for kind in &KINDS {
            let sql = joined(kind, &format!("r{i}"), "l.k = {r}.k");
            script.query(sql.replace("FROM l ", &format!("FROM l{i} l ")));
        }
    }
    script
}

fn several_keys() -> Script {
    let mut script = Script::new("join_several_keys", "Joins on two and three keys.");
    let sets: [(&[&str], [&str; 3]); 5] = [
        (&["INT", "INT"], ["1, 1", "1, 2", "2, 1"]),
        (&["INT", "VARCHAR"], ["1, 'a'", "1, 'ab'", "11, 'a'"]),
        (&["VARCHAR", "VARCHAR"], ["'a', 'bc'", "'ab', 'c'", "'', 'abc'"]),
        (&["DATE", "DECIMAL(15, 2)"], ["'1969-12-31', 1.5", "'1970-01-01', 1.5", "'1969-12-31', -1.5"]),
        (
            &["BIGINT", "BIGINT", "VARCHAR"],
            ["5000000000, 1, 'x'", "1, 5000000000, 'x'", "5000000000, 1, '日本'"],
        ),
    ];
    for (i, (types, [a, b, c])) in sets.iter().enumerate() {
        script.comment(format!("{}.", types.join(", ")));
        let columns = |other: &str| {
            let keys: Vec<String> = types.iter().enumerate().map(|(i, t)| format!("k{i} {t}")).collect();
            format!("{}, {other} INT", keys.join(", "))
        };
        let null = vec!["NULL"; types.len()].join(", ");
        let first_null = format!("NULL, {}", a.split_once(", ").map_or("", |(_, rest)| rest));
        let rows = |keys: &[&str]| -> Vec<String> {
            keys.iter().enumerate().map(|(i, k)| format!("{k}, {}", i + 1)).collect()
        };
        script.table(&format!("l{i}"), &columns("v"), &rows(&[a, a, b, &null, &first_null, c]));
        script.table(&format!("r{i}"), &columns("w"), &rows(&[a, c, c, &null, &first_null, b]));
        let on = |operator: &str| {
            let all: Vec<String> =
                (0..types.len()).map(|i| format!("(l.k{i} {operator} {{r}}.k{i})")).collect();
            all.join(" AND ")
        };
        for kind in &KINDS {
            let kind = kind.replace("l.k, v, {r}.k, w", "l.*, {r}.*").replace("SELECT k,", "SELECT k0, k1,");
            for on in [on("="), format!("{} AND v <= w", on("=")), on("IS NOT DISTINCT FROM")] {
                let sql = joined(&kind, &format!("r{i}"), &on);
                script.query(sql.replace("FROM l ", &format!("FROM l{i} l ")));
            }
        }
    }
    script
}

/// Joins of joins, joins below and above other operators.
fn shapes() -> Script {
    let mut script = Script::new("join_shapes", "Joins of joins, and joins beside other operators.");
    let rows = |rows: &[&str]| rows.iter().map(|row| (*row).to_string()).collect::<Vec<_>>();
    script.table(
        "customer",
        "c INT NOT NULL, name VARCHAR NOT NULL, nation INT",
        &rows(&["1, 'Ada', 1", "2, 'Bo', 2", "3, 'Cy', NULL", "4, 'Di', 1"]),
    );
    script.table(
        "orders",
        "o INT NOT NULL, c INT, day DATE, price DECIMAL(15, 2)",
        &rows(&[
            "10, 1, '2024-01-01', 100.50", "11, 1, '2024-01-02', 0.50", "12, 2, '2024-01-02', 7.25",
            "13, NULL, '2024-01-03', 1.00", "14, 9, NULL, NULL",
        ]),
    );
    script.table(
        "item",
        "o INT, part VARCHAR, quantity INT",
        &rows(&[
            "10, 'bolt', 5", "10, 'nut', 6", "11, 'bolt', 1", "12, 'gear', 2", "15, 'nut', 3",
            "NULL, 'gear', 4",
        ]),
    );
    script.table("nation", "n INT, nation VARCHAR", &rows(&["1, 'Chad'", "2, 'Peru'", "3, 'Fiji'"]));
    for sql in [
        "SELECT name, day, part, quantity FROM customer JOIN orders ON customer.c = orders.c JOIN item ON orders.o = item.o",
        "SELECT name, day, part FROM customer LEFT JOIN orders ON customer.c = orders.c LEFT JOIN item ON orders.o = item.o",
        "SELECT name, day, part FROM customer LEFT JOIN (orders JOIN item ON orders.o = item.o) ON customer.c = orders.c",
        "SELECT name, o, n.nation FROM nation n RIGHT JOIN customer ON n = customer.nation FULL JOIN orders ON customer.c = orders.c",
        "SELECT name, n.nation, o FROM customer, nation n, orders WHERE n = customer.nation AND orders.c = customer.c",
        "SELECT name, n.nation FROM customer, nation n WHERE n = customer.nation AND name > n.nation",
        "SELECT name, n.nation FROM customer CROSS JOIN nation n",
        "SELECT count(*) FROM customer, orders, item, nation",
        "SELECT a.name, b.name FROM customer a JOIN customer b ON a.nation = b.nation AND a.c < b.c",
        "SELECT a.c, b.c, d.c FROM customer a, customer b, customer d WHERE a.c < b.c AND b.c < d.c",
        "SELECT n.nation, count(*), sum(price) FROM customer JOIN nation n ON n = customer.nation LEFT JOIN orders ON customer.c = orders.c GROUP BY n.nation",
        "SELECT name, sum(price), count(o) FROM customer LEFT JOIN orders ON customer.c = orders.c GROUP BY name HAVING count(o) < 2",
        "SELECT part, count(DISTINCT c), max(day) FROM item LEFT JOIN orders ON orders.o = item.o GROUP BY part",
        "SELECT name FROM customer WHERE c IN (SELECT c FROM orders WHERE o IN (SELECT o FROM item WHERE quantity > 1))",
        "SELECT name FROM customer WHERE c NOT IN (SELECT c FROM orders)",
        "SELECT name FROM customer WHERE c NOT IN (SELECT c FROM orders WHERE c IS NOT NULL)",
        "SELECT name FROM customer WHERE NOT EXISTS (SELECT 1 FROM orders WHERE orders.c = customer.c AND price > 1)",
        "SELECT name FROM customer LEFT SEMI JOIN (orders JOIN item ON orders.o = item.o) ON customer.c = orders.c AND quantity > 4",
        "SELECT name, total FROM customer JOIN (SELECT c, sum(price) AS total FROM orders GROUP BY c) t ON t.c = customer.c",
        "SELECT name, total FROM customer LEFT JOIN (SELECT c, sum(price) AS total FROM orders GROUP BY c) t ON t.c = customer.c AND total > 10",
        "SELECT day, name FROM (SELECT DISTINCT day, c FROM orders) o FULL JOIN customer ON o.c = customer.c",
        "SELECT upper(name), price * 2, quantity + 1 FROM customer JOIN orders ON customer.c = orders.c JOIN item ON orders.o = item.o WHERE price > 1 AND part LIKE '%t'",
        "SELECT name, o FROM customer LEFT JOIN orders ON customer.c = orders.c WHERE o IS NULL OR price < 5",
        "SELECT name, o FROM customer LEFT JOIN orders ON customer.c = orders.c AND customer.nation = 1",
        "SELECT name, o FROM customer FULL JOIN orders ON customer.c = orders.c AND price > 5",
        "SELECT c FROM customer UNION SELECT c FROM orders",
        "SELECT l.o, r.o FROM orders l JOIN orders r ON l.day = r.day AND l.price > r.price",
        "SELECT l.o, r.o FROM orders l LEFT JOIN orders r ON l.c + 1 = r.c",
        "SELECT l.part, r.part FROM item l JOIN item r ON substr(l.part, 2) = substr(r.part, 2) AND l.quantity <> r.quantity",
        "SELECT l.part, r.quantity FROM item l RIGHT JOIN item r ON l.quantity * 2 = r.quantity",
        "SELECT name, CASE WHEN o IS NULL THEN 'none' ELSE CAST(o AS VARCHAR) END FROM customer LEFT JOIN orders ON customer.c = orders.c",
        "SELECT coalesce(customer.c, orders.c) AS c, name, o FROM customer FULL JOIN orders ON customer.c = orders.c",
    ] {
        script.query(sql);
    }
    for sql in [
        "SELECT name, price FROM customer JOIN orders ON customer.c = orders.c ORDER BY price DESC NULLS LAST, name",
        "SELECT name, price FROM customer LEFT JOIN orders ON customer.c = orders.c ORDER BY price NULLS FIRST, name LIMIT 3",
        "SELECT name, part, quantity FROM customer JOIN orders ON customer.c = orders.c JOIN item ON orders.o = item.o ORDER BY quantity DESC LIMIT 2",
        "SELECT name, part FROM customer JOIN orders ON customer.c = orders.c JOIN item ON orders.o = item.o ORDER BY name, part LIMIT 2 OFFSET 1",
        "SELECT q.name, o FROM (SELECT name, c FROM customer ORDER BY name DESC LIMIT 3) q LEFT JOIN orders ON q.c = orders.c ORDER BY name, o",
    ] {
        script.ordered(sql);
    }
    script
}
