//! The queries of the experiments.

use super::model::{Case, Data};
use super::{Divergence, Experiment, Point, dogqc, grouping};
use crate::Workload;

/// Half widths of the range of quantities around 25: selectivities 0 to 1, as quantities are 1 to 50, uniformly.
const HALF_WIDTHS: [i32; 11] = [-1, 0, 2, 4, 7, 9, 12, 14, 17, 19, 25];
/// Numbers of groups.
const GROUPS: [u32; 14] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// The star join of SSB 3.1, without its groups: what is left is the join.
const STAR_JOIN: &str = "select count(*), sum(lo_revenue)
from customer, lineorder, supplier, date
where lo_custkey = c_custkey and lo_suppkey = s_suppkey and lo_orderdate = d_datekey
  and c_region = 'ASIA' and s_region = 'ASIA' and d_year >= 1992 and d_year <= 1997";

/// Table 1 of the paper.
const PASSES: [(&str, f64); 25] = [
    ("ssb 1.1", 7.5),
    ("ssb 1.2", 6.9),
    ("ssb 1.3", 6.7),
    ("ssb 2.1", 9.6),
    ("ssb 2.2", 9.2),
    ("ssb 2.3", 9.1),
    ("ssb 3.1", 11.0),
    ("ssb 3.2", 7.9),
    ("ssb 3.3", 7.5),
    ("ssb 3.4", 2.2),
    ("ssb 4.1", 7.4),
    ("ssb 4.2", 3.9),
    ("ssb 4.3", 3.5),
    ("tpch 1", 15.5),
    ("tpch 2", 14.5),
    ("tpch 3", 5.2),
    ("tpch 4", 6.6),
    ("tpch 5", 7.2),
    ("tpch 6", 6.2),
    ("tpch 7", 9.0),
    ("tpch 9", 9.0),
    ("tpch 10", 5.8),
    ("tpch 15", 6.3),
    ("tpch 18", 38.5),
    ("tpch 20", 10.5),
];

/// The cases of an experiment on one data set; of these, the ones that are wanted.
pub fn of(experiment: Experiment, data: Data, scale: f64, only: &[String]) -> Vec<Case> {
    let all = match (experiment, data) {
        (Experiment::Grouping(figure), _) => grouping::cases(figure, scale),
        (Experiment::Divergence(Divergence::Tpch | Divergence::EndToEnd), Data::Workload(workload)) => {
            queries(workload, "")
        }
        (Experiment::Divergence(figure), _) => dogqc::cases(figure),
        (_, Data::Workload(workload)) => of_workload(experiment, workload, scale),
        (_, Data::Grouping | Data::Joins | Data::Texts) => Vec::new(),
    };
    all.into_iter().filter(|case| only.is_empty() || only.contains(&case.label)).collect()
}

fn of_workload(experiment: Experiment, workload: Workload, scale: f64) -> Vec<Case> {
    match experiment {
        Experiment::Selection => HALF_WIDTHS.map(|half| selection(half, false)).to_vec(),
        Experiment::SingleAggregate => HALF_WIDTHS.map(|half| selection(half, true)).to_vec(),
        Experiment::Groups => GROUPS.map(groups).to_vec(),
        Experiment::StarJoin => {
            vec![Case::new(scale, Some(scale), STAR_JOIN.into())]
        }
        Experiment::Passes => queries(workload, &format!("{} ", workload.name())),
        _ => queries(workload, ""),
    }
}

fn queries(workload: Workload, prefix: &str) -> Vec<Case> {
    let query = |(name, sql): (String, &str)| {
        Case::new(format!("{prefix}{name}"), None, sql.trim_end().trim_end_matches(';').into())
    };
    workload.queries().into_iter().map(query).collect()
}

/// Query 1 (figure 16), or its sum.
fn selection(half: i32, sum: bool) -> Case {
    let selectivity = (f64::from(2 * half + 1) / 50.0).clamp(0.0, 1.0);
    let (low, high) = (25 - half, 25 + half);
    let revenue = "lo_extendedprice * lo_discount + lo_tax";
    let column = if sum { format!("sum({revenue}) as revenue") } else { format!("{revenue} as revenue") };
    let sql = format!("select {column}\nfrom lineorder\nwhere lo_quantity between {low} and {high}");
    Case::new(selectivity, Some(selectivity), sql)
}

/// Query 2 (figure 26).
fn groups(groups: u32) -> Case {
    let sql = format!(
        "select sum(lo_extendedprice), lo_orderkey % {groups} as x\nfrom lineorder\ngroup by lo_orderkey % {groups}"
    );
    Case::new(groups, Some(groups.into()), sql)
}

/// What the paper has at a position, where that does not depend on the machine.
pub fn of_the_paper(experiment: Experiment, case: &Case) -> Option<Point> {
    let known = PASSES.iter().find(|(name, _)| experiment == Experiment::Passes && *name == case.label);
    known.map(|(_, passes)| Point {
        passes: Some(*passes),
        ..Point::new("HorseQC's paper (CoGaDB)", &case.label, case.position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Figure;

    #[test]
    fn positions_are_what_the_paper_has() {
        let all = |experiment, workload| of(experiment, Data::Workload(workload), 1.0, &[]);
        let selections = all(Experiment::Selection, Workload::Ssb);
        let positions: Vec<f64> = selections.iter().filter_map(|case| case.position).collect();
        assert_eq!(positions, [0.0, 0.02, 0.1, 0.18, 0.3, 0.38, 0.5, 0.58, 0.7, 0.78, 1.0]);
        assert!(selections[0].sql.contains("between 26 and 24"), "{}", selections[0].sql);
        assert_eq!(all(Experiment::Groups, Workload::Ssb).len(), 14);
        assert_eq!(all(Experiment::Tpch, Workload::Tpch).len(), 22);
        let passes: Vec<Case> =
            [Workload::Ssb, Workload::Tpch].into_iter().flat_map(|w| all(Experiment::Passes, w)).collect();
        let known = passes.iter().filter_map(|case| of_the_paper(Experiment::Passes, case)).count();
        assert_eq!((passes.len(), known), (35, PASSES.len()));
        let one = of(Experiment::Ssb, Data::Workload(Workload::Ssb), 1.0, &["3.1".into()]);
        assert_eq!(one.len(), 1);
        for experiment in Experiment::all() {
            assert_eq!(Experiment::named(experiment.name()), Ok(vec![experiment]));
        }
        assert!(Experiment::named("horseqc-7").is_err_and(|error| error.contains("table-3")));
        assert!(Experiment::named("groupby").is_ok_and(|all| all.len() == Figure::ALL.len()));
        assert!(Experiment::named("dogqc").is_ok_and(|all| all.len() == Divergence::ALL.len()));
        assert_eq!(all(Experiment::Divergence(Divergence::Tpch), Workload::Tpch).len(), 22);
    }
}
