//! The lanes of warps that have rows, step by step, as SVG: a row of panels for each run, a panel for each step, and in it a bar for
//! each number of lanes (DogQC, figures 2 and 5).

use std::fmt::Write;

use super::plot::text;
use super::point::StepLanes;

/// Of a panel, without what stands around it.
const WIDTH: f64 = 190.0;
const HEIGHT: f64 = 90.0;
/// Around it.
const LEFT: f64 = 50.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 34.0;
/// Above the first row, for the title.
const TITLE: f64 = 40.0;
/// Characters of a step's name that have room.
const NAME: usize = 34;

/// The plot: of each run its name and its steps.
pub fn to_svg(title: &str, runs: &[(String, Vec<StepLanes>)]) -> String {
    let columns = runs.iter().map(|(_, steps)| steps.len()).max().unwrap_or(0).max(1) as f64;
    let (wide, high) = (LEFT + WIDTH, TOP + HEIGHT + BOTTOM);
    let (all_wide, all_high) = (columns * wide + 20.0, TITLE + runs.len() as f64 * high);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all_wide} {all_high}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{all_wide}\" height=\"{all_high}\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 24.0), "start", "font-size=\"15\"", title);
    let seen = runs.iter().flat_map(|(_, steps)| steps).map(|step| step.by_lanes.len());
    let lanes = seen.max().unwrap_or(1).max(1).next_power_of_two();
    for (row, (name, steps)) in runs.iter().enumerate() {
        let top = TITLE + row as f64 * high;
        text(&mut svg, (LEFT, top + 14.0), "start", "font-weight=\"bold\"", name);
        for (column, step) in steps.iter().enumerate() {
            panel(&mut svg, step, lanes, (LEFT + column as f64 * wide, top + TOP));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// One step: bars of the shares that warps with rows in so many of `lanes` lanes have of all its warps.
fn panel(svg: &mut String, step: &StepLanes, lanes: usize, (left, top): (f64, f64)) {
    let shares: Vec<f64> =
        step.by_lanes.iter().map(|warps| *warps as f64 / step.warps.max(1) as f64).collect();
    let most = shares.iter().copied().fold(0.0, f64::max);
    // The axis ends at a tenth.
    let end = ((most * 10.0).ceil() / 10.0).max(0.1);
    let name: String = step.step.chars().take(NAME).collect();
    text(svg, (left, top - 20.0), "start", "", &name);
    let counts = format!("{} rows, {} warps, {:.1} lanes", short(step.rows), short(step.warps), step.mean);
    text(svg, (left, top - 6.0), "start", "fill=\"#444444\"", &counts);
    let width = WIDTH / lanes as f64;
    for (index, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        let (x, high) = (left + width * index as f64, HEIGHT * share / end);
        let (y, wide) = (top + HEIGHT - high, width * 0.8);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"#0072b2\"/>"
        );
    }
    let (bottom, right) = (top + HEIGHT, left + WIDTH);
    let _ = writeln!(svg, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>");
    text(svg, (left - 4.0, top + 8.0), "end", "", &format!("{:.0} %", end * 100.0));
    text(svg, (left - 4.0, bottom), "end", "", "0");
    for lane in [1, lanes / 4, lanes / 2, lanes].into_iter().filter(|lane| *lane > 0) {
        let x = left + width * (lane as f64 - 0.6);
        text(svg, (x, bottom + 13.0), "middle", "", &lane.to_string());
    }
}

/// At most four digits: `2.9 M`.
fn short(count: u64) -> String {
    match count as f64 {
        count if count >= 1e7 => format!("{:.0} M", count / 1e6),
        count if count >= 1e6 => format!("{:.1} M", count / 1e6),
        count if count >= 1e4 => format!("{:.0} K", count / 1e3),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, by_lanes: &[u64]) -> StepLanes {
        let rows = (1..).zip(by_lanes).map(|(lanes, warps)| lanes * warps).sum();
        let warps = by_lanes.iter().sum();
        let mean = rows as f64 / f64::max(1.0, warps as f64);
        let (pipeline, step) = ("scan".to_string(), name.to_string());
        StepLanes { pipeline, step, rows, warps, mean, by_lanes: by_lanes.to_vec() }
    }

    #[test]
    fn panels_have_a_bar_for_each_number_of_lanes_that_warps_came_with() {
        let full = vec![step("filter a < b", &[1, 0, 0, 3]), step("", &[])];
        let few = vec![step("join", &[5])];
        let svg = to_svg("lanes", &[("10, naive".into(), full), ("10, packed".into(), few)]);
        assert_eq!(svg.matches("#0072b2").count(), 3, "{svg}");
        assert!(svg.contains("filter a &lt; b") && svg.contains("13 rows, 4 warps, 3.2 lanes"), "{svg}");
        assert!(svg.contains("100 %") && svg.contains("80 %"), "{svg}");
        assert!(!svg.contains("NaN") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(!to_svg("nothing", &[]).contains("NaN"));
        assert_eq!([short(12), short(45_000), short(2_900_000)], ["12", "45 K", "2.9 M"]);
    }
}
