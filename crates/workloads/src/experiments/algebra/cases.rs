//! What is measured at which positions.

use anyhow::Result;
use kelpie_session::algebra::{
    Algebra, BlockJoin, CompareOp, Comparison, Description, Duplicates, Field, Operator, Outcome, Outer,
    Output, Partition, Relation, Stored, Tuning, Tuples,
};

use super::data::Keys;
use super::{Bench, Figure, Shown, TUPLES, median, point};

/// Two relations.
pub struct Made {
    pub left: Relation,
    pub right: Relation,
}

/// An operator in some form.
pub struct Case {
    pub name: String,
    pub description: Description,
}

const OUTPUTS: [(Output, &str); 3] =
    [(Output::Gather, "gather"), (Output::SinglePass, "single_pass"), (Output::Pages, "pages")];
const JOIN: Operator = Operator::Join(Outer { left: false, right: false });
/// The paper's sections were 14,336; these are a power of two.
const SECTIONS: u32 = 1 << 14;
/// Percentiles of sizes.
const PERCENTILES: [u32; 9] = [0, 1, 5, 25, 50, 75, 95, 99, 100];
/// Tuples of a page.
const PAGES: [u32; 5] = [256, 1024, 4096, 16_384, 65_536];
/// Sizes at which a single relation is looked at, at most.
const MOST_OF_TABLE: u32 = 16 << 20;
/// Bytes of a tuple.
const BYTES: f64 = 4.0;

/// Measures a figure.
pub fn run(figure: Figure, bench: &Bench<'_>) -> Result<Vec<Shown>> {
    let mut shown = Vec::new();
    let into = &mut shown;
    match figure {
        Figure::Operators => operators(bench, into),
        Figure::Sections => sections(bench, into),
        Figure::Dropped | Figure::Partition | Figure::Skipped | Figure::Streaming => {
            by_distribution(figure, bench, into)
        }
        Figure::BlockJoins => block_joins(bench, into),
        Figure::Stages => stages(bench, into),
        Figure::Pages => pages(bench, into),
    }?;
    Ok(shown)
}

fn rows_of(outcome: &Outcome) -> f64 {
    match &outcome.result {
        Stored::Dense(relation) => relation.rows.into(),
        Stored::Paged(paged) => paged.rows.into(),
    }
}

/// Bytes of input and output.
fn bytes_of(case: &Case, made: &Made, outcome: &Outcome) -> f64 {
    let right = if matches!(case.description.operator, Operator::Select(_)) { 0 } else { made.right.rows };
    let out = f64::from(case.description.output().width.bytes());
    (f64::from(made.left.rows) + f64::from(right)) * BYTES + rows_of(outcome) * out
}

/// The operators in all forms. Half of the tuples are selected.
fn cases() -> Vec<Case> {
    let half = Comparison { field: Field { shift: 0, bits: 2 }, op: CompareOp::Lt, value: 2 };
    let operators = [
        ("select", Operator::Select(vec![half])),
        ("intersect", Operator::Intersect),
        ("union", Operator::Union),
        ("difference", Operator::Difference),
        ("join", JOIN),
    ];
    let mut cases = Vec::new();
    for (name, operator) in operators {
        for (output, form) in OUTPUTS {
            // As in the paper, a selection looks at tuples alone.
            let duplicates = match operator {
                Operator::Select(_) => Duplicates::Each,
                _ => Duplicates::First,
            };
            let new = Description::new(operator.clone(), TUPLES);
            let description = Description { output, duplicates, ..new };
            cases.push(Case { name: format!("{name}, {form}"), description: description.clone() });
            if operator == JOIN {
                let description = Description { partition: Partition::BinarySearch, ..description };
                cases.push(Case { name: format!("{name}, {form}, binary_search"), description });
            }
        }
    }
    cases
}

fn operators(bench: &Bench<'_>, into: &mut Vec<Shown>) -> Result<()> {
    let algebra = &bench.algebra;
    for count in bench.sizes().into_iter().filter(|count| bench.wants(&count.to_string())) {
        (bench.settings.step)(&format!("operators over {count} tuples"));
        let (x, position) = (count.to_string(), Some(f64::from(count)));
        let sparse = bench.relations(Keys::Uniform, count)?;
        let all = f64::from(count) * BYTES;
        let mut add = |name: &str, bytes: f64, times: Vec<u64>| {
            into.push(point(name, &x, position, bytes / median(times)));
        };
        let times = |run: &dyn Fn() -> Result<u64>| -> Result<Vec<u64>> {
            run()?;
            (0..bench.settings.runs.max(1)).map(|_| run()).collect()
        };
        add("copy", 2.0 * all, times(&|| Ok(algebra.copy(&sparse.left)?))?);
        let to = Tuples { key_bits: 28, value_bits: 0, ..TUPLES };
        let fields = [Field { shift: 2, bits: 28 }];
        add("project", 2.0 * all, times(&|| Ok(algebra.project(&sparse.left, &fields, to)?.1))?);
        let few = Tuples { key_bits: 12, value_bits: 4, ..TUPLES };
        let [left, right] = [count / 1024, 1024].map(|rows| {
            let tuples: Vec<u128> = (0..u128::from(rows)).map(|row| row % (1 << 16)).collect();
            let mut sorted = tuples;
            sorted.sort_unstable();
            algebra.upload(few, &sorted)
        });
        let (left, right) = (left?, right?);
        let rows =
            f64::from(left.rows) * f64::from(right.rows) + f64::from(left.rows) + f64::from(right.rows);
        add("product", rows * BYTES, times(&|| Ok(algebra.product(&left, &right)?.1))?);
        let dense = bench.relations(Keys::Dense, count)?;
        for case in cases() {
            let outcomes = bench.outcomes(algebra, &case, &sparse)?;
            let of = |outcomes: &[Outcome]| outcomes.iter().map(Outcome::time_ns).collect::<Vec<_>>();
            let bytes = outcomes.first().map_or(0.0, |outcome| bytes_of(&case, &sparse, outcome));
            add(&case.name, bytes, of(&outcomes));
            if case.description.operator == JOIN {
                let outcomes = bench.outcomes(algebra, &case, &dense)?;
                let bytes = outcomes.first().map_or(0.0, |outcome| bytes_of(&case, &dense, outcome));
                add(&format!("{}, dense", case.name), bytes, of(&outcomes));
            }
        }
    }
    Ok(())
}

/// A join whose inputs are cut by search.
fn searched(tuning: Tuning) -> Case {
    let new = Description::new(JOIN, TUPLES);
    let (partition, output) = (Partition::BinarySearch, Output::Gather);
    Case { name: "join".into(), description: Description { partition, output, tuning, ..new } }
}

fn sections(bench: &Bench<'_>, into: &mut Vec<Shown>) -> Result<()> {
    let case = searched(Tuning { sections: SECTIONS, ..Tuning::default() });
    for keys in Keys::COMPARED {
        (bench.settings.step)(&format!("sections, {} keys", keys.name()));
        let made = bench.relations(keys, bench.most.min(MOST_OF_TABLE))?;
        let outcome = bench.algebra.run(&distinct(&case.description), &made.left, &made.right)?;
        let mut sizes: Vec<u32> = outcome.sections.iter().map(|(left, right)| left + right).collect();
        sizes.sort_unstable();
        for percent in PERCENTILES {
            let index = sizes.len().saturating_sub(1) * percent as usize / 100;
            let size = f64::from(sizes.get(index).copied().unwrap_or_default());
            into.push(point(&keys.name(), &percent.to_string(), Some(percent.into()), size));
        }
    }
    Ok(())
}

/// The same of keys: a join of frequent ones would have too many results.
fn distinct(description: &Description) -> Description {
    Description { operator: Operator::Intersect, ..description.clone() }
}

fn by_distribution(figure: Figure, bench: &Bench<'_>, into: &mut Vec<Shown>) -> Result<()> {
    let sections = if matches!(figure, Figure::Dropped | Figure::Partition) { SECTIONS } else { 0 };
    // Blocks of 1 KB, as the paper's.
    let items = match figure {
        Figure::Skipped => (256 / bench.algebra.shape().block_threads).max(1),
        _ => 0,
    };
    let case = searched(Tuning { sections, items, ..Tuning::default() });
    let case = Case { description: distinct(&case.description), ..case };
    for count in bench.sizes().into_iter().filter(|count| bench.wants(&count.to_string())) {
        for keys in Keys::COMPARED {
            (bench.settings.step)(&format!("{count} tuples, {} keys", keys.name()));
            let made = bench.relations(keys, count)?;
            let outcomes = bench.outcomes(&bench.algebra, &case, &made)?;
            let Some(first) = outcomes.first() else { continue };
            let stage = |name: &str| {
                let of = |outcome: &Outcome| {
                    outcome.stages.iter().find(|stage| stage.name == name).map(|s| s.time_ns)
                };
                median(outcomes.iter().filter_map(of).collect())
            };
            let all = f64::from(count) * 2.0;
            let shown = match figure {
                Figure::Dropped => first.dropped as f64 * 100.0 / all,
                Figure::Skipped => first.skipped as f64 * 100.0 / all,
                Figure::Partition => stage("partition") / 1e6,
                _ => bytes_of(&case, &made, first) / stage("compute"),
            };
            into.push(point(&keys.name(), &count.to_string(), Some(count.into()), shown));
        }
    }
    Ok(())
}

fn block_joins(bench: &Bench<'_>, into: &mut Vec<Shown>) -> Result<()> {
    let made = bench.relations(Keys::Uniform, bench.most.min(MOST_OF_TABLE))?;
    let is_cpu = bench.algebra.shape().is_serial();
    let threads: &[Option<u32>] = if is_cpu { &[None] } else { &[Some(128), Some(256), Some(512)] };
    for threads in threads {
        let algebra = Algebra::of(bench.engine, &bench.options, *threads)?;
        for blocking in [1, 2, 4, 8] {
            let mut series = format!("blocking {blocking}");
            if let Some(threads) = threads {
                series = format!("{series}, {threads} threads");
            }
            for block_join in BlockJoin::ALL.into_iter().filter(|join| bench.wants(join.name())) {
                (bench.settings.step)(&format!("{}, {series}", block_join.name()));
                let tuning = Tuning { blocking, items: if is_cpu { 0 } else { 8 }, ..Tuning::default() };
                let new = Description::new(JOIN, TUPLES);
                let description = Description { block_join, tuning, ..new };
                let case = Case { name: block_join.name().into(), description };
                let outcomes = bench.outcomes(&algebra, &case, &made)?;
                let compute = |outcome: &Outcome| {
                    outcome.stages.iter().find(|stage| stage.name == "compute").map(|s| s.time_ns)
                };
                let results = outcomes.first().map_or(1.0, rows_of).max(1.0);
                let time = median(outcomes.iter().filter_map(compute).collect());
                into.push(point(&series, block_join.name(), None, time * 1000.0 / results));
            }
        }
    }
    Ok(())
}

fn stages(bench: &Bench<'_>, into: &mut Vec<Shown>) -> Result<()> {
    for keys in [Keys::Uniform, Keys::Dense] {
        let made = bench.relations(keys, bench.most)?;
        for case in cases().into_iter().filter(|case| case.description.operator == JOIN) {
            let series = format!("{}, {}", case.name, keys.name());
            (bench.settings.step)(&series);
            let outcomes = bench.outcomes(&bench.algebra, &case, &made)?;
            let Some(first) = outcomes.first() else { continue };
            let all = first.time_ns().max(1) as f64;
            for stage in &first.stages {
                let share = stage.time_ns as f64 * 100.0 / all;
                into.push(point(&series, stage.name, None, share));
            }
        }
    }
    Ok(())
}

fn pages(bench: &Bench<'_>, into: &mut Vec<Shown>) -> Result<()> {
    let made = bench.relations(Keys::Uniform, bench.most)?;
    let algebra = &bench.algebra;
    let bytes = f64::from(made.left.rows) * BYTES * 2.0;
    for page in PAGES {
        (bench.settings.step)(&format!("pages of {page} tuples"));
        let (mut copies, mut there, mut back) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=bench.settings.runs.max(1) {
            copies.push(algebra.copy(&made.left)?);
            let (paged, time_ns) = algebra.to_pages(&made.left, page)?;
            there.push(time_ns);
            back.push(algebra.to_dense(&paged)?.1);
        }
        for (name, mut times) in [("copy", copies), ("to pages", there), ("to an array", back)] {
            times.remove(0);
            let (x, position) = (page.to_string(), Some(f64::from(page)));
            into.push(point(name, &x, position, bytes / median(times)));
        }
    }
    Ok(())
}
