//! The statements, by topic: every combination of a kind of operator, types, NULLs and duplicates.

mod aggregates;
mod joins;
mod sets;
mod sorts;
mod strings;
mod subqueries;

/// A step of a script.
pub enum Step {
    /// What follows.
    Comment(String),
    /// A statement without an answer.
    Statement(String),
    /// A query; `ordered` where the order of its rows is determined.
    Query { sql: String, ordered: bool },
}

/// A file of statements.
pub struct Script {
    /// Its name, without ending.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Its statements.
    pub steps: Vec<Step>,
}

impl Script {
    fn new(name: impl Into<String>, about: impl Into<String>) -> Script {
        Script { name: name.into(), about: about.into(), steps: Vec::new() }
    }

    fn comment(&mut self, comment: impl Into<String>) {
        self.steps.push(Step::Comment(comment.into()));
    }

    fn statement(&mut self, sql: impl Into<String>) {
        self.steps.push(Step::Statement(sql.into()));
    }

    fn query(&mut self, sql: impl Into<String>) {
        self.steps.push(Step::Query { sql: sql.into(), ordered: false });
    }

    fn ordered(&mut self, sql: impl Into<String>) {
        self.steps.push(Step::Query { sql: sql.into(), ordered: true });
    }

    /// A table of rows, each the text inside its parentheses.
    fn table(&mut self, name: &str, columns: &str, rows: &[String]) {
        self.statement(format!("CREATE TABLE {name} ({columns})"));
        if !rows.is_empty() {
            let rows: Vec<String> = rows.iter().map(|row| format!("({row})")).collect();
            self.statement(format!("INSERT INTO {name} VALUES {}", rows.join(", ")));
        }
    }
}

/// A type of column and six of its values in ascending order.
struct Type {
    name: &'static str,
    sql: &'static str,
    values: [&'static str; 6],
}

/// Types that join, group and sort. Dates and times lie on both sides of 1970; texts share beginnings and are longer and
/// shorter than what a view keeps inline.
const TYPES: [Type; 15] = [
    Type { name: "tinyint", sql: "TINYINT", values: ["-128", "-1", "0", "1", "7", "127"] },
    Type { name: "smallint", sql: "SMALLINT", values: ["-32768", "-2", "0", "300", "301", "32767"] },
    Type { name: "int", sql: "INT", values: ["-2147483648", "-5", "0", "1", "70000", "2147483647"] },
    Type {
        name: "bigint",
        sql: "BIGINT",
        values: ["-9223372036854775808", "-5000000000", "0", "1", "5000000000", "9223372036854775807"],
    },
    Type { name: "utinyint", sql: "TINYINT UNSIGNED", values: ["0", "1", "2", "100", "200", "255"] },
    Type {
        name: "usmallint",
        sql: "SMALLINT UNSIGNED",
        values: ["0", "1", "300", "40000", "50000", "65535"],
    },
    Type { name: "uint", sql: "INT UNSIGNED", values: ["0", "1", "2", "70000", "3000000000", "4294967295"] },
    Type {
        name: "ubigint",
        sql: "BIGINT UNSIGNED",
        values: ["0", "1", "2", "5000000000", "9223372036854775808", "18446744073709551615"],
    },
    Type { name: "real", sql: "REAL", values: ["-1000.5", "-0.25", "0.0", "0.5", "1.5", "100000"] },
    Type { name: "double", sql: "DOUBLE", values: ["-1e15", "-0.25", "0.0", "0.5", "1.5", "1e15"] },
    Type {
        name: "decimal",
        sql: "DECIMAL(15, 2)",
        values: ["-9999999999999.99", "-1.50", "0.00", "0.01", "12.34", "9999999999999.99"],
    },
    Type {
        name: "decimal38",
        sql: "DECIMAL(38, 10)",
        values: [
            "-1234567890123456789012345678.0123456789",
            "-0.0000000001",
            "0.0000000000",
            "0.0000000001",
            "1.0000000000",
            "1234567890123456789012345678.0123456789",
        ],
    },
    Type {
        name: "date",
        sql: "DATE",
        values: [
            "'0001-01-01'", "'1969-12-31'", "'1970-01-01'", "'2000-02-29'", "'2024-12-31'", "'9999-12-31'",
        ],
    },
    Type {
        name: "timestamp",
        sql: "TIMESTAMP",
        values: [
            "'1899-12-31 23:59:59'", "'1969-12-31 23:59:59.999999'", "'1970-01-01 00:00:00'",
            "'1970-01-01 00:00:00.000001'", "'2024-02-29 12:34:56.789'", "'2200-01-01 00:00:00'",
        ],
    },
    Type {
        name: "varchar",
        sql: "VARCHAR",
        values: [
            "''",
            "'a'",
            "'a longer text with a common beginning, one'",
            "'a longer text with a common beginning, two'",
            "'naïve'",
            "'日本語'",
        ],
    },
];

const BOOLEAN: Type =
    Type { name: "boolean", sql: "BOOLEAN", values: ["FALSE", "FALSE", "FALSE", "TRUE", "TRUE", "TRUE"] };

/// All files.
pub fn all() -> Vec<Script> {
    let mut scripts = joins::scripts();
    scripts.extend(aggregates::scripts());
    scripts.extend(sorts::scripts());
    scripts.extend(sets::scripts());
    scripts.push(strings::script());
    scripts.push(subqueries::script());
    scripts
}
