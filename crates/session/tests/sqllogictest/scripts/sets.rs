//! UNION, INTERSECT, EXCEPT and DISTINCT by type.

use super::{BOOLEAN, Script, TYPES, Type};

const OPERATORS: [&str; 6] = ["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"];

pub fn scripts() -> Vec<Script> {
    vec![by_type(), shapes()]
}

fn by_type() -> Script {
    let mut script = Script::new("set_types", "Set operations on columns of every type.");
    for data_type in TYPES.iter().chain([&BOOLEAN]) {
        let Type { name, sql, values: [a, b, c, d, e, _] } = data_type;
        script.comment(format!("{sql}."));
        let rows = |keys: &[&str]| keys.iter().map(|k| (*k).to_string()).collect::<Vec<_>>();
        let (left, right) = (format!("l_{name}"), format!("r_{name}"));
        script.table(&left, &format!("k {sql}"), &rows(&[a, a, b, "NULL", "NULL", c, d]));
        script.table(&right, &format!("k {sql}"), &rows(&[b, "NULL", a, e, b]));
        for operator in OPERATORS {
            script.query(format!("SELECT k FROM {left} {operator} SELECT k FROM {right}"));
        }
        script.query(format!("SELECT k FROM {right} EXCEPT SELECT k FROM {left}"));
        script.query(format!("SELECT k FROM {left} INTERSECT SELECT k FROM {right} WHERE k IS NULL"));
        script.query(format!(
            "SELECT k, count(*) FROM (SELECT k FROM {left} UNION ALL SELECT k FROM {right}) q GROUP BY k"
        ));
        script.ordered(format!(
            "SELECT k FROM {left} UNION SELECT k FROM {right} ORDER BY k DESC NULLS LAST LIMIT 4"
        ));
    }
    script
}

fn shapes() -> Script {
    let mut script =
        Script::new("set_shapes", "Set operations on several columns, of operators, of two types.");
    let rows = |rows: &[&str]| rows.iter().map(|row| (*row).to_string()).collect::<Vec<_>>();
    script.table(
        "a",
        "n INT, s VARCHAR",
        &rows(&["1, 'x'", "1, 'x'", "2, NULL", "NULL, 'y'", "NULL, NULL", "3, 'z'"]),
    );
    script.table(
        "b",
        "n INT, s VARCHAR",
        &rows(&["1, 'x'", "2, NULL", "2, NULL", "NULL, NULL", "4, 'x'", "3, 'Z'"]),
    );
    script.table("c", "n BIGINT, d DECIMAL(10, 2)", &rows(&["1, 1.00", "3, 2.50", "5000000000, NULL"]));
    script.table("e", "n INT, s VARCHAR", &[]);
    for operator in OPERATORS {
        for sql in [
            "SELECT n, s FROM a {} SELECT n, s FROM b",
            "SELECT s, n FROM b {} SELECT s, n FROM a",
            "SELECT n, s FROM a {} SELECT n, s FROM e",
            "SELECT n, s FROM e {} SELECT n, s FROM a",
            "SELECT n FROM a {} SELECT n FROM c",
            "SELECT n FROM a {} SELECT d FROM c",
            "SELECT n FROM a WHERE n > 1 {} SELECT n FROM b WHERE s IS NULL",
            "SELECT n + 1, upper(s) FROM a {} SELECT n, s FROM b",
            "SELECT n, count(*) FROM a GROUP BY n {} SELECT n, count(*) FROM b GROUP BY n",
            "SELECT a.n, b.s FROM a JOIN b ON a.n = b.n {} SELECT n, s FROM b",
            "SELECT count(*), max(n) FROM (SELECT n FROM a {} SELECT n FROM b) q",
            "SELECT q.n, b.s FROM (SELECT n FROM a {} SELECT n FROM c) q JOIN b ON q.n = b.n",
        ] {
            script.query(sql.replace("{}", operator));
        }
    }
    for sql in [
        "SELECT n FROM a UNION SELECT n FROM b UNION SELECT n FROM c",
        "SELECT n FROM a UNION ALL SELECT n FROM b UNION SELECT n FROM a",
        "SELECT n FROM a UNION ALL (SELECT n FROM b EXCEPT SELECT n FROM c)",
        "(SELECT n FROM a UNION SELECT n FROM b) INTERSECT SELECT n FROM c",
        "SELECT n FROM a EXCEPT (SELECT n FROM b INTERSECT SELECT n FROM c)",
        "SELECT n, NULL AS m FROM a UNION SELECT NULL, n AS m FROM b",
        "SELECT 1 AS x, 'one' UNION ALL SELECT n, s FROM a",
        "SELECT DISTINCT n FROM (SELECT n FROM a UNION ALL SELECT n FROM b) q",
        "SELECT s, sum(n) FROM (SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM a) q GROUP BY s",
        "SELECT n FROM a WHERE n IN (SELECT n FROM b UNION SELECT n FROM c)",
    ] {
        script.query(sql);
    }
    script
}
