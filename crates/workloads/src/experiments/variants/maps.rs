//! What variants take: maps, shares and the fastest (sections 2.1.3 and 2.2.3).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kelpie_session::spaces::{Genome, Kind, Space};

use super::super::algebra::{Settings, Shown, point};
use super::bench::{Bench, Times, middle};

/// Eleven, as in the paper.
const SELECTIVITIES: [f64; 11] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// The place of half of the rows.
const HALF: usize = 5;
/// How much slower than the fastest, in steps.
const SLOWDOWNS: [f64; 11] = [1.01, 1.03, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0];
/// Variants of a table.
const SHOWN: usize = 12;
/// The genome's places.
const KIND: usize = 0;
const ELEMENT_BITS: usize = 1;

/// The code of a selection, without its workload: `sequential 64 PU`.
fn code(bench: &Bench, genome: &Genome) -> String {
    let Some(variant) = bench.selections.variant(genome) else { return String::new() };
    let (predicated, unrolled) =
        (if variant.branched { "" } else { "P" }, if variant.unrolled { "U" } else { "" });
    let name = variant.kind.name().trim_start_matches("interleaved-");
    format!("{name} {} {predicated}{unrolled}", variant.element_bits).trim_end().to_string()
}

/// The code of a sum: `interleaved U8 I4`.
fn sum_code(bench: &Bench, genome: &Genome) -> (String, u32) {
    let Some(variant) = bench.sums.variant(genome) else { return Default::default() };
    let access = if variant.interleaved { "interleaved" } else { "sequential" };
    (format!("{access} U{} I{}", variant.unroll, variant.parallel), variant.vector)
}

/// Of each row and column the least time, relative to the least of all.
fn map(times: impl IntoIterator<Item = (String, (String, f64), u64)>) -> Vec<Shown> {
    let (mut rows, mut cells) = (Vec::new(), BTreeMap::<(String, String), (f64, u64)>::new());
    for (row, (column, position), time) in times {
        if !rows.contains(&row) {
            rows.push(row.clone());
        }
        let cell = cells.entry((row, column)).or_insert((position, time));
        cell.1 = cell.1.min(time);
    }
    let best = cells.values().map(|(_, time)| *time).min().unwrap_or(1) as f64;
    let of_row = |row: &String| {
        let own = cells.iter().filter(|((name, _), _)| name == row);
        let mut own: Vec<Shown> = own
            .map(|((_, column), (position, time))| point(row, column, Some(*position), *time as f64 / best))
            .collect();
        own.sort_by(|a, b| a.position.unwrap_or_default().total_cmp(&b.position.unwrap_or_default()));
        own
    };
    rows.iter().flat_map(of_row).collect()
}

/// Selections with their times at each selectivity.
type BySelectivity = Vec<(Genome, Vec<Times>)>;

/// The times of selections at each selectivity, with their genomes.
fn by_selectivity<'b>(
    bench: &'b mut Bench,
    settings: &Settings<'_>,
) -> Result<(&'b Bench, &'b BySelectivity)> {
    if bench.whole.selections.is_none() {
        bench.whole.selections = Some(time_by_selectivity(bench, settings)?);
    }
    let bench = &*bench;
    Ok((bench, bench.whole.selections.as_ref().context("selections were measured")?))
}

fn time_by_selectivity(bench: &Bench, settings: &Settings<'_>) -> Result<BySelectivity> {
    let breadth = bench.breadth(false);
    let mut genomes = bench.selections.genomes();
    genomes.retain(|genome| breadth.has_selection(genome));
    let whole = [bench.all()];
    let times = bench.time_selections(&genomes, (&SELECTIVITIES, &whole), settings)?;
    Ok(genomes.into_iter().zip(times).collect())
}

/// Figure 2.
pub fn selections(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let (bench, measured) = by_selectivity(bench, settings)?;
    let cells = measured.iter().flat_map(|(genome, times)| {
        let of = move |(share, times): (&f64, &Times)| {
            (code(bench, genome), (share.to_string(), *share), middle(times))
        };
        SELECTIVITIES.iter().zip(times).map(of)
    });
    Ok(map(cells))
}

/// Tables 1 and 2: at each selectivity the fastest, and how often each code is.
pub fn fastest_selections(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let (bench, measured) = by_selectivity(bench, settings)?;
    let mut shown = Vec::new();
    for (number, share) in SELECTIVITIES.iter().enumerate() {
        let time = |times: &Vec<Times>| times.get(number).map_or(u64::MAX, |times| middle(times));
        let best = measured.iter().min_by_key(|(_, times)| time(times));
        let Some((genome, times)) = best else { continue };
        let name = format!("{share}: {}", name(&bench.selections.describe(genome)));
        shown.push(point("fastest", &name, None, time(times) as f64 / 1e6));
    }
    Ok(shown)
}

/// A genome's values, without the variables' names but for numbers.
fn name(described: &str) -> String {
    described.replace("kind=", "").replace("interleaved-", "").replace("element_", "").replace("access=", "")
}

/// Figure 5: the unrolled, predicated kernels of 64 bits in sequence, and of 32 bits by transposition.
pub fn work(bench: &Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let mut shown = Vec::new();
    for (kind, bits) in [(Kind::Sequential, 3), (Kind::Transpose, 2)] {
        let mut genomes = bench.selections.genomes();
        let kind_number = Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default() as u16;
        genomes.retain(|genome| {
            genome.get(KIND..=ELEMENT_BITS) == Some(&[kind_number, bits]) && genome.get(2..4) == Some(&[0, 1])
        });
        let whole = [bench.all()];
        let times = bench.time_selections(&genomes, (&[0.5], &whole), settings)?;
        let cells = genomes.iter().zip(&times).filter_map(|(genome, times)| {
            let [.., elements, threads] = **genome else { return None };
            let variables = bench.selections.variables();
            let value = |number: usize, value: u16| variables.get(number)?.values.get(usize::from(value));
            let (elements, threads) = (value(4, elements)?, (value(5, threads)?, threads));
            let row = format!("{} {elements}", code(bench, genome));
            Some((row, (threads.0.clone(), threads.1.into()), middle(times.first()?)))
        });
        shown.extend(map(cells.collect::<Vec<_>>()));
    }
    Ok(shown)
}

/// The sums that are measured over the whole column, with their times.
fn whole_sums<'b>(
    bench: &'b mut Bench,
    settings: &Settings<'_>,
) -> Result<(&'b Bench, &'b [(Genome, Times)])> {
    if bench.whole.sums.is_none() {
        let genomes = bench.measured(false);
        let times = if bench.chunk(0) == bench.all() {
            let known = bench.known(false, settings)?;
            genomes.iter().map(|genome| known.get(genome).cloned().unwrap_or_default()).collect()
        } else {
            bench.time_sums(&genomes, &[bench.all()], settings)?
        };
        bench.whole.sums = Some(genomes.into_iter().zip(times).collect());
    }
    let bench = &*bench;
    Ok((bench, bench.whole.sums.as_ref().context("sums were measured")?))
}

/// Figure 4.
pub fn sums(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let (bench, measured) = whole_sums(bench, settings)?;
    Ok(map(measured.iter().map(|(genome, times)| {
        let (row, vector) = sum_code(bench, genome);
        (row, (vector.to_string(), vector.into()), middle(times))
    })))
}

/// Table 3.
pub fn fastest_sums(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let (bench, measured) = whole_sums(bench, settings)?;
    let mut measured = measured.to_vec();
    measured.sort_by_key(|(_, times)| middle(times));
    let shown = |(genome, times): &(Genome, Times)| {
        point("fastest", &name(&bench.sums.describe(genome)), None, middle(times) as f64 / 1e6)
    };
    Ok(measured.iter().take(SHOWN).map(shown).collect())
}

/// The share of variants that are no more than so much slower than the fastest, and how much the slowest is.
fn shares(name: &str, times: &[u64]) -> Vec<Shown> {
    let best = times.iter().copied().min().unwrap_or(1).max(1) as f64;
    let slowest = times.iter().copied().max().unwrap_or(1) as f64 / best;
    let name = format!("{name} ({} variants, the slowest {slowest:.0})", times.len());
    let share = |slowdown: f64| {
        let near = times.iter().filter(|time| **time as f64 <= best * slowdown).count();
        point(&name, &slowdown.to_string(), Some(slowdown), near as f64 * 100.0 / times.len().max(1) as f64)
    };
    SLOWDOWNS.map(share).into()
}

/// Figure 3.
pub fn selection_shares(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let times: Vec<u64> = if bench.chunk(0) == bench.all() {
        bench.known(true, settings)?.values().map(|times| middle(times)).collect()
    } else if bench.breadth(true) == bench.breadth(false) {
        let (_, measured) = by_selectivity(bench, settings)?;
        measured.iter().filter_map(|(_, times)| times.get(HALF)).map(|times| middle(times)).collect()
    } else {
        let (genomes, whole) = (bench.measured(true), [bench.all()]);
        let times = bench.time_selections(&genomes, (&[0.5], &whole), settings)?;
        times.iter().flatten().map(|times| middle(times)).collect()
    };
    Ok(shares("selections", &times))
}

/// Figure 6.
pub fn sum_shares(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let (_, measured) = whole_sums(bench, settings)?;
    let times: Vec<u64> = measured.iter().map(|(_, times)| middle(times)).collect();
    Ok(shares("sums", &times))
}
