//! Maps as SVG: rows and columns of cells, the darker the faster (Rosenfeld et al., figures 2, 4 and 5).

use std::fmt::Write;

use super::plot::text;

/// Of a cell, and of what stands around cells.
const HEIGHT: f64 = 13.0;
const WIDTH: f64 = 48.0;
const LEFT: f64 = 220.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// So that the title has room.
const LEAST_WIDTH: f64 = 760.0;
/// From this slowdown on cells are white.
const WHITE: f64 = 4.0;

/// A map: `value` of a row and a column, 1 the fastest of all. `title` has what it shows, and what columns are.
pub(super) fn to_svg(
    (title, x): (&str, &str),
    rows: &[&str],
    columns: &[&str],
    value: &dyn Fn(&str, &str) -> Option<f64>,
) -> String {
    let wide = (LEFT + columns.len() as f64 * WIDTH + 20.0).max(LEAST_WIDTH);
    let high = TOP + rows.len() as f64 * HEIGHT + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" font-family=\"sans-serif\" \
         font-size=\"10\">\n<rect width=\"{wide}\" height=\"{high}\" fill=\"white\"/>\n"
    );
    text(&mut svg, (20.0, 24.0), "start", "font-size=\"13\"", title);
    for (row, name) in rows.iter().enumerate() {
        let top = TOP + row as f64 * HEIGHT;
        text(&mut svg, (LEFT - 6.0, top + HEIGHT - 3.0), "end", "", name);
        for (column, x) in columns.iter().enumerate() {
            let Some(value) = value(name, x) else { continue };
            cell(&mut svg, (LEFT + column as f64 * WIDTH, top), value);
        }
    }
    let bottom = TOP + rows.len() as f64 * HEIGHT;
    for (column, x) in columns.iter().enumerate() {
        let middle = LEFT + (column as f64 + 0.5) * WIDTH;
        text(&mut svg, (middle, bottom + 15.0), "middle", "", x);
    }
    let middle = LEFT + columns.len() as f64 * WIDTH / 2.0;
    text(&mut svg, (middle, bottom + 35.0), "middle", "font-size=\"12\"", x);
    svg.push_str("</svg>\n");
    svg
}

/// A cell with its number. Shades go by the logarithm.
fn cell(svg: &mut String, (left, top): (f64, f64), value: f64) {
    let share = (value.max(1.0).ln() / WHITE.ln()).clamp(0.0, 1.0);
    let shade = (40.0 + share * 215.0) as u8;
    let ink = if share < 0.5 { "white" } else { "black" };
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"rgb({shade},{shade},{shade})\"/>"
    );
    let place = (left + WIDTH / 2.0, top + HEIGHT - 3.0);
    text(svg, place, "middle", &format!("fill=\"{ink}\""), &format!("{value:.2}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_cell_for_each_value_that_is_known() {
        let value =
            |row: &str, x: &str| (row == "a" || x == "1").then_some(if row == "a" { 1.0 } else { 9.0 });
        let svg = to_svg(("a map", "numbers"), &["a", "b<c"], &["1", "2"], &value);
        assert_eq!(
            (svg.matches("rgb(40,40,40)").count(), svg.matches("rgb(255,255,255)").count()),
            (2, 1),
            "{svg}"
        );
        assert!(svg.contains("b&lt;c") && svg.contains(">9.00<") && svg.contains(">numbers<"), "{svg}");
        assert!(!to_svg(("nothing", ""), &[], &[], &value).contains("NaN"));
    }
}
