//! What a user is told who has made a mistake.

use crate::program::{file, kelpie};

/// The error of a statement over a table of people.
fn error(sql: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let people = file(&folder, "people.csv", "name,age,born,note\nAnn,31,1990-05-01,x\nBob,,1991-01-02,y\n");
    let run = kelpie(&["--device", "cpu", &people, "-c", sql]);
    assert_eq!(run.code, Some(1), "{sql}: {}", run.out);
    let error = run.err.strip_prefix("error: ").unwrap_or_else(|| panic!("{sql}: {}", run.err)).to_string();
    for word in
        ["DataFusion's code", "Arrow error", "caused by", "Utf8", "Int64", "Optimizer rule", "ParserError"]
    {
        assert!(!error.contains(word), "{sql}: {error}");
    }
    error
}

/// The message, and the word of the last line of the statement over which the caret stands.
#[track_caller]
fn says(sql: &str, text: &str, place: &str) {
    let found = error(sql);
    let (message, shown) = found.split_once("\nLINE ").unwrap_or((found.trim_end(), ""));
    assert_eq!(message, text, "{sql}");
    let mut lines = shown.lines();
    let (line, caret) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let column = caret.chars().position(|letter| letter == '^').map_or(0, |column| column - "LINE ".len());
    let at: String = line.chars().skip(column).collect();
    assert!(at.starts_with(place) && (place.is_empty() == at.is_empty()), "{sql}: {found}");
}

#[test]
fn mistakes_in_syntax_are_shown_where_they_are() {
    let select = "syntax error at `selec`: expected an SQL statement; did you mean SELECT for `selec`?";
    says("selec name from people", select, "selec name");
    let from = "syntax error at `people`: expected end of statement; did you mean FROM for `form`?";
    says("select name\nform people", from, "form");
    let end = "syntax error at the end of the statement: expected an expression";
    says("select name from people where", end, "");
    says("select 'abc from people", "syntax error: a text has no closing quote", "'abc");
    says("select (1 + 2 from people", "syntax error at `from`: expected )", "from");
}

#[test]
fn names_that_are_not_there_are_shown_with_those_that_are_near() {
    says("select nam from people", "there is no column `nam` in `people`; did you mean `name`?", "nam ");
    says(
        "select people.nam from people",
        "there is no column `nam` in `people`; did you mean `name`?",
        "people.nam",
    );
    says(
        "select 'nam', nam from people",
        "there is no column `nam` in `people`; did you mean `name`?",
        "nam from",
    );
    let all = "there is no column `zzz` in `people`; there are `name`, `age`, `born`, `note`";
    says("select * from people where zzz = 'é'", all, "zzz");
    says("select nope", "there is no column `nope`: the statement has no FROM", "nope");
    let quotes = "there is no column `Ann` in `people`; a text stands in single quotes: 'Ann'";
    says("select * from people where name = \"Ann\"", quotes, "\"Ann\"");
    let table = "the statement has no table `p` for the column `name`; there are `people`";
    says("select p.name from people", table, "p.name");
    says("select * from peopel", "the table `peopel` was not found; did you mean `people`?", "peopel");
    says("select * from x.y", "the table `x.y` was not found; there are `people`", "x.y");
    let twice = "the column `name` is ambiguous, as several tables have it: write the table before it, as in `t.name`";
    says("select a.age from people a, people b where name = 'x'", twice, "name =");
    let given = "there is no column `n` in `people`; SELECT gives that name, which is not known in WHERE and beside it: repeat what it stands for";
    says("select random() as n from people where n > 0.5", given, "n >");
    says("select * from rnge(1)", "there is no table function `rnge`; did you mean `range`?", "rnge");
    says("select x.* from people", "the statement has no table `x`", "");
    says("select uper(name) from people", "there is no function `uper`; did you mean `upper`?", "uper(");
    let other = "there is no function `charindex`; use strpos(text, part)";
    says("select charindex(name) from people", other, "charindex");
    says("select qqqq(name) from people", "there is no function `qqqq`", "qqqq");
    says("set kelpie.devce = 'cpu'", "there is no option `kelpie.devce`; did you mean `kelpie.device`?", "");
    says(
        "set batch_size = 1",
        "there is no option `batch_size`; did you mean `datafusion.execution.batch_size`?",
        "",
    );
    says("set qqqqqqq = 1", "there is no option `qqqqqqq`; SHOW ALL lists the options", "");
}

#[test]
fn types_that_do_not_fit_are_named_as_people_name_them() {
    says("select sum(note) from people", "sum takes a number; note is text", "sum(");
    says(
        "select avg(upper(note)) from people group by name",
        "avg takes a number; upper(note) is text",
        "avg(",
    );
    says("select sqrt(name) from people", "sqrt takes a number; name is text", "sqrt(");
    says("select round(note, 2) from people", "round takes a number; note is text", "round(");
    let operator = "the operator + does not go with text on the left and a date on the right";
    says("select name + born from people", operator, "");
    says("select max(name, 1, 2) from people", "max has 3 arguments, which are too few or too many", "max(");
    says(
        "select upper(age) from people",
        "upper does not take that: age is a number; it is upper(text)",
        "upper(",
    );
    says("select upper(name, name) from people", "upper has 2 arguments, and is upper(text)", "upper(");
    says("select concat() from people", "concat has no arguments, which are too few or too many", "concat(");
    let substr = "substr does not take that: 'abc' is text, 'x' is text; it is substr(str: text, start_pos: number) or \
                  substr(str: text, start_pos: number, length: number)";
    says("select substr('abc', 'x')", substr, "substr(");
    says("select age[1] from people", "[…] takes an item of a list; what stands before it is a number", "");
    says("select min(*) from people", "a * cannot stand here: only count(*) takes it", "");
    says("select lag(age) from people", "lag is a window function: OVER (…) stands behind it", "lag(");
    says("select * from people where name", "a condition is true or false; people.name is text", "");
    let window = "a window function cannot stand here: name it in a subquery, or use QUALIFY";
    says("select * from people where row_number() over () = 1", window, "");
    says("insert into people select 1", "INSERT has another number of values than there are columns", "");
    says("copy people to 'x.docx'", ".docx is not written; .parquet, .csv, .json and .arrow are", "");
    let option = "datafusion.execution.batch_size: 'many' is no whole number";
    says("set datafusion.execution.batch_size = 'many'", option, "");
    says("select name like 5 from people", "LIKE goes with texts, and not with text and a number", "");
    says("select not name from people", "NOT takes true or false, and not text", "");
    let group = "the column `name` stands beside an aggregate: it has to be in GROUP BY, or in an aggregate such as min(name)";
    says("select name, count(*) from people", group, "name,");
    says(
        "update people set age = 1",
        "UPDATE is not there for tables of files: write a new one with COPY or CREATE TABLE … AS",
        "",
    );
}

#[test]
fn texts_that_are_no_values_are_shown() {
    let date = "'foo' is no date, such as '2024-12-31'";
    says("select * from people where born = 'foo'", date, "'foo'");
    says("select date 'foo'", date, "'foo'");
    says("select cast(name as int) from people", "'Ann' is no whole number", "");
    says("select cast('99999999999' as int)", "99999999999 is beyond the range of its type", "'9");
    says("select interval 'foo'", "'foo' is no interval, such as '3 days'", "'foo'");
}

#[test]
fn only_local_files_are_tables_and_others_are_said_not_to_be_read() {
    let remote = "s3://bucket/x.parquet: only local files can be tables";
    says("select * from 's3://bucket/x.parquet'", remote, "");
    let external = "create external table s stored as parquet location 's3://bucket/x.parquet'";
    says(external, &format!("{remote} or be written"), "");
    let folder = tempfile::tempdir().unwrap();
    let notes = file(&folder, "notes.md", "x\n");
    kelpie(&[&notes]).fails_with(&["notes.md: no Parquet, CSV", ": .md is not read"]);
    let spaced = file(&folder, "spaced.csv", "a b\n1 2\n");
    let guessed = format!("select b from '{spaced}'");
    kelpie(&["-c", &guessed]).fails_with(&["its only column is `a b`", "'format.delimiter'"]);
}
