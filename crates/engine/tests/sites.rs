//! The names of the operators that choices are shown and forced by follow from the plan: no choice renames those of another operator.

use crate::common::*;
use crate::plans::{filter, join, plans, scan};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, ScanInfo};
use kelpie_compile::types::Range;
use kelpie_engine::variant::{Genome, Level};
use kelpie_kir::{Scalar, Target};

fn layout(field: &Field) -> ColumnLayout {
    let fixed = |scalar| Storage::Fixed { scalar, has_base: false };
    let (storage, range) = match field.data_type {
        DataType::Utf8 => (Storage::Dictionary { code: Scalar::U16, entries: 900 }, None),
        DataType::Int32 => (fixed(Scalar::I32), Some(Range::new(0, 900))),
        DataType::Int64 => (fixed(Scalar::I64), Some(Range::new(0, 40))),
        DataType::Float64 => (fixed(Scalar::F64), None),
        ref other => panic!("no test has a column of {other:?}"),
    };
    ColumnLayout { storage, has_nulls: field.nullable, range }
}

fn scans(plan: &Plan) -> Vec<ScanInfo> {
    match plan {
        Plan::Scan(scan) => vec![ScanInfo::new(1_000_000, scan.fields.iter().map(layout).collect())],
        _ => plan.inputs().into_iter().flat_map(scans).collect(),
    }
}

/// What is chosen for a plan of one stage on a CPU; `None` where that is not possible.
fn genome(plan: &Plan, forced: &Forced) -> Option<Genome> {
    let duplicates = BTreeSet::new();
    let choices = Choices { forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
    Some(pipeline::compile_with(plan, &scans(plan), &Target::cpu(2), &choices).ok()?.genome)
}

/// The operator of a site.
fn operator(site: &str) -> &str {
    site.split('.').next().unwrap_or(site)
}

/// The operators whose choices are named, but one of them.
fn others<'g>(genome: &'g Genome, own: &str) -> BTreeSet<&'g str> {
    let of_plan = genome.0.iter().filter(|choice| choice.axis.level == Level::Plan);
    of_plan.map(|choice| operator(&choice.site)).filter(|other| *other != own).collect()
}

#[test]
fn no_choice_renames_another_operator() {
    let mut forced_values = 0;
    for (name, plan, _) in plans() {
        let Some(ruled) = genome(&plan, Forced::none()) else { continue };
        for choice in ruled.0.iter().filter(|choice| choice.axis.level == Level::Plan) {
            for value in choice.possible().filter(|value| *value != choice.value) {
                let qualified = choice.qualified();
                let Some(other) = genome(&plan, &force([(qualified.as_str(), value)])) else { continue };
                let own = operator(&choice.site);
                assert_eq!(others(&other, own), others(&ruled, own), "{name}: {qualified} = {value}");
                forced_values += 1;
            }
        }
    }
    assert!(forced_values > 500, "{forced_values}");
}

/// Every choice of some operators: site, axis and value.
fn choices<'g>(genome: &'g Genome, operators: &[&str]) -> Vec<(&'g str, &'static str, &'static str)> {
    let own = genome.0.iter().filter(|choice| operators.contains(&operator(&choice.site)));
    own.map(|choice| (choice.site.as_str(), choice.axis.name, choice.value)).collect()
}

/// Groups with values that count once, beside others, below groups of both, in all of which something is chosen.
#[test]
fn what_is_chosen_of_other_operators_stays_under_their_names() {
    let keys = |plan: &Plan| vec![column(plan, 0)];
    let once = distinct(of_longs(AggregateFunction::Count, Some(column(&scan(0), 1))));
    let left = groups_of(scan(0), keys(&scan(0)), vec![once]);
    let right = groups_of(scan(1), keys(&scan(1)), vec![of_longs(AggregateFunction::Count, None)]);
    let joined = join(JoinKind::Inner, left, filter(right, 1, CompareOp::Lt, 100), &[(0, 0)], false);
    let top = groups_of(joined.clone(), vec![column(&joined, 1)], Vec::new());
    let names = ["aggregate1", "aggregate2", "join0"];
    let of = |forced: &[(&str, &str)]| genome(&top, &force(forced)).expect("it compiles");
    let (set, groups) = (of(&[("distinct_values", "set")]), of(&[("aggregate0.distinct_values", "groups")]));
    assert_eq!(choices(&set, &names), choices(&groups, &names));
    assert!(names.iter().all(|name| !choices(&set, &[name]).is_empty()));
    // The second aggregation of the first operator has a name of its own.
    let has = |genome: &Genome, site: &str| genome.of(site).next().is_some();
    assert!(has(&groups, "aggregate0.groups") && !has(&set, "aggregate0.groups"));
    let forced = of(&[("aggregate0.distinct_values", "groups"), ("aggregate0.groups.group_table", "hash")]);
    let table = forced.of("aggregate0.groups").find(|choice| choice.axis.name == "group_table");
    assert_eq!(table.map(|choice| (choice.value, choice.reason.as_str())), Some(("hash", "forced")));
}
