//! Plots as SVG: lines over a numeric axis, or bars over names.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
/// Of the area of the plot.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 880.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 410.0;
/// Told apart also by those who do not see all colours (Okabe and Ito). More series than these are told apart by dots beside.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#1b1b1b"];
/// Lines of the legend, and how wide it is at most.
const LEGEND_LINE: f64 = 16.0;
const LEGEND_CHARACTER: f64 = 6.2;
/// A value beyond so many times what nine of ten values stay below is cut off, and marked.
const OUTLIER: f64 = 4.0;
/// Marks on an axis, about.
const TICKS: f64 = 6.0;

/// A series: points (x, y), in order.
#[derive(Debug, Clone)]
pub struct Line {
    pub name: String,
    /// A bound, not a measurement: dashed.
    pub is_floor: bool,
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Debug, Clone)]
pub struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    /// Names of the positions 0, 1, … of a plot with bars; none of one with lines.
    pub categories: Vec<String>,
    pub is_log_x: bool,
    pub lines: Vec<Line>,
}

/// Values to places on an axis.
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    is_log: bool,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.max(1e-9).log2() } else { value };
        let (from, to) = (scale(self.from), scale(self.to));
        let share = if to > from { (scale(value) - from) / (to - from) } else { 0.5 };
        self.start + share * (self.end - self.start)
    }

    /// Round values, or powers of two.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let (first, last) = (self.from.log2().ceil() as i32, self.to.log2().floor() as i32);
            let step = ((f64::from(last - first) / TICKS).ceil() as usize).max(1);
            return (first..=last).step_by(step).map(|power| 2f64.powi(power)).collect();
        }
        let step = round_step((self.to - self.from) / TICKS);
        let mut ticks = Vec::new();
        let mut value = (self.from / step).ceil() * step;
        while value <= self.to * (1.0 + 1e-9) && ticks.len() < 100 {
            ticks.push(value);
            value += step;
        }
        ticks
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let found = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step);
    found.unwrap_or(10.0) * power
}

impl Chart {
    /// The plot as a document.
    pub fn to_svg(&self) -> String {
        let (x, y) = self.axes();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, (LEFT, 25.0), "start", "font-size=\"15\"", &self.title);
        self.draw_axes(&mut svg, &x, &y);
        let bars = self.lines.iter().filter(|line| !line.is_floor).count();
        let mut colours = COLOURS.iter().cycle();
        let mut bar = 0;
        let mut shown = Vec::new();
        for line in &self.lines {
            let colour = if line.is_floor { "#444444" } else { colours.next().unwrap_or(&"black") };
            let is_repeated = !line.is_floor
                && shown.iter().filter(|(l, _): &&(&Line, Ink)| !l.is_floor).count() >= COLOURS.len();
            let ink =
                Ink { colour, dash: if is_repeated { " stroke-dasharray=\"1 4\"" } else { dash(line) } };
            if self.categories.is_empty() || line.is_floor {
                draw_line(&mut svg, line, ink, (&x, &y));
            } else {
                draw_bars(&mut svg, line, colour, (bar, bars), (&x, &y));
                bar += 1;
            }
            shown.push((line, ink));
        }
        self.draw_legend(&mut svg, &shown, (&x, &y));
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self) -> (Axis, Axis) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = self.most();
        let from = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let to = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = match self.categories.len() {
            0 if from.is_finite() => (from, to),
            names => (-0.5, names.max(1) as f64 - 0.5),
        };
        let is_log = self.is_log_x && from > 0.0;
        let x = Axis { from, to, start: LEFT, end: RIGHT, is_log };
        let to = if most > 0.0 { most * 1.05 } else { 1.0 };
        (x, Axis { from: 0.0, to, start: BOTTOM, end: TOP, is_log: false })
    }

    fn draw_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        for tick in y.ticks() {
            let place = y.place(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{place:.1}\" y2=\"{place:.1}\" stroke=\"#dddddd\"/>"
            );
            text(svg, (LEFT - 6.0, place + 4.0), "end", "", &short(tick));
        }
        let names = self.categories.iter().enumerate().map(|(i, name)| (i as f64, name.clone()));
        let marks: Vec<(f64, String)> = match self.categories.is_empty() {
            true => x.ticks().into_iter().map(|tick| (tick, short(tick))).collect(),
            false => names.collect(),
        };
        let slanted = marks.len() > 12;
        for (value, name) in marks {
            let place = x.place(value);
            let (down, anchor) = if slanted { (12.0, "end") } else { (18.0, "middle") };
            let turn = format!("transform=\"rotate(-45 {place:.1} {:.1})\"", BOTTOM + down);
            text(svg, (place, BOTTOM + down), anchor, if slanted { &turn } else { "" }, &name);
        }
        let _ = writeln!(svg, "<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"black\"/>");
        text(svg, ((LEFT + RIGHT) / 2.0, HEIGHT - 10.0), "middle", "", &self.x);
        let turn = format!("transform=\"rotate(-90 16 {})\"", (TOP + BOTTOM) / 2.0);
        text(svg, (16.0, (TOP + BOTTOM) / 2.0), "middle", &turn, &self.y);
    }

    /// The greatest value that is shown: where a few are far beyond the others, these are cut off, as nobody could tell the others apart.
    fn most(&self) -> f64 {
        let mut values: Vec<f64> = self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).collect();
        values.sort_by(f64::total_cmp);
        let most = values.last().copied().unwrap_or(0.0).max(0.0);
        let usual = values.get(values.len() * 9 / 10).copied().unwrap_or(most) * OUTLIER;
        if usual > 0.0 && most > usual { usual } else { most }
    }

    /// The legend: in the corner of the plot in which the fewest points lie.
    fn draw_legend(&self, svg: &mut String, lines: &[(&Line, Ink)], (x, y): (&Axis, &Axis)) {
        let longest = lines.iter().map(|(line, _)| line.name.chars().count()).max().unwrap_or(0);
        let wide = 40.0 + LEGEND_CHARACTER * longest as f64;
        let high = 8.0 + LEGEND_LINE * lines.len() as f64;
        let corners = [(RIGHT - wide - 6.0, TOP + 4.0), (LEFT + 8.0, TOP + 4.0)];
        let corners = corners.into_iter().chain(corners.map(|(left, _)| (left, BOTTOM - high - 6.0)));
        let place = |(px, py): (f64, f64)| (x.place(px), y.place(py.min(y.to)));
        let of_line =
            |(line, _): &(&Line, Ink)| along(&line.points.iter().copied().map(place).collect::<Vec<_>>());
        let places: Vec<_> = lines.iter().flat_map(of_line).collect();
        let hidden = |(left, top): &(f64, f64)| {
            let is_hidden =
                |(px, py): &&(f64, f64)| (*left..left + wide).contains(px) && (*top..top + high).contains(py);
            places.iter().filter(is_hidden).count()
        };
        let (left, top) = corners.min_by_key(hidden).unwrap_or((LEFT, TOP));
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"white\" \
             fill-opacity=\"0.85\" stroke=\"#cccccc\"/>"
        );
        for (index, (line, ink)) in lines.iter().enumerate() {
            let place = top + 12.0 + LEGEND_LINE * index as f64;
            let (from, to) = (left + 6.0, left + 30.0);
            let Ink { colour, dash } = ink;
            let _ = writeln!(
                svg,
                "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{place:.1}\" y2=\"{place:.1}\" stroke=\"{colour}\" \
                 stroke-width=\"3\"{dash}/>"
            );
            text(svg, (to + 5.0, place + 4.0), "start", "font-size=\"11\"", &line.name);
        }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy)]
struct Ink {
    colour: &'static str,
    /// An attribute; empty where it is no line of dashes.
    dash: &'static str,
}

/// Points all along a line of segments, these among them.
fn along(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let between = |ends: &[(f64, f64)]| {
        let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
        (1..8)
            .map(move |step| (x0 + (x1 - x0) * f64::from(step) / 8.0, y0 + (y1 - y0) * f64::from(step) / 8.0))
    };
    points.iter().copied().chain(points.windows(2).flat_map(between)).collect()
}

fn draw_line(svg: &mut String, line: &Line, Ink { colour, dash }: Ink, (x, y): (&Axis, &Axis)) {
    let place = |(px, py): &(f64, f64)| (x.place(*px), y.place(py.min(y.to)));
    let points: Vec<String> =
        line.points.iter().map(place).map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
    let points = points.join(" ");
    let _ = writeln!(
        svg,
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
    );
    for point in line.points.iter().filter(|_| !line.is_floor) {
        let (px, py) = place(point);
        match point.1 > y.to {
            true => cut_off(svg, px, colour, point.1),
            false => {
                let _ = writeln!(svg, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
        }
    }
}

/// Marks a value that is beyond the plot: an arrow upwards, and the value.
fn cut_off(svg: &mut String, x: f64, colour: &str, value: f64) {
    let (left, right, foot) = (x - 5.0, x + 5.0, TOP + 9.0);
    let _ = writeln!(
        svg,
        "<path d=\"M{left:.1} {foot:.1}L{x:.1} {TOP:.1}L{right:.1} {foot:.1}Z\" fill=\"{colour}\"/>"
    );
    text(svg, (x, TOP - 4.0), "middle", "font-size=\"9\"", &short(value));
}

/// Draws bar number `bar` of so many at each position.
fn draw_bars(
    svg: &mut String,
    line: &Line,
    colour: &str,
    (bar, bars): (usize, usize),
    (x, y): (&Axis, &Axis),
) {
    let width = 0.8 / bars.max(1) as f64;
    for (category, value) in &line.points {
        let left = x.place(category - 0.4 + width * bar as f64);
        let right = x.place(category - 0.4 + width * (bar + 1) as f64);
        let top = y.place(value.min(y.to));
        if *value > y.to {
            cut_off(svg, (left + right) / 2.0, colour, *value);
        }
        let (wide, high) = (right - left, BOTTOM - top);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"{colour}\"/>"
        );
    }
}

/// The link's floor is dashed as in the paper, memory's is dotted, so that both are told from lines.
fn dash(line: &Line) -> &'static str {
    match (line.is_floor, line.name.as_str()) {
        (false, _) => "",
        (true, "link") => " stroke-dasharray=\"8 5\"",
        (true, _) => " stroke-dasharray=\"2 3\"",
    }
}

/// A text at a place; `more`: further attributes.
pub(super) fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{content}</text>");
}

/// At most four digits, without zeros at the end.
fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 3 };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(categories: &[&str], is_log_x: bool, points: &[(f64, f64)]) -> Chart {
        let line = |name: &str, is_floor| Line { name: name.into(), is_floor, points: points.to_vec() };
        Chart {
            title: "a < b & c".into(),
            x: "x".into(),
            y: "y".into(),
            categories: categories.iter().map(|name| (*name).into()).collect(),
            is_log_x,
            lines: vec![line("one", false), line("two", false), line("link", true)],
        }
    }

    #[test]
    fn places_are_finite_and_text_is_escaped() {
        for chart in [
            chart(&[], false, &[(0.0, 1.0), (0.5, 3.0), (1.0, 0.0)]),
            chart(&[], true, &[(2.0, 1.0), (16384.0, 1e6)]),
            chart(&[], false, &[(1.0, 5.0)]),
            chart(&[], false, &[]),
            chart(&["1.1", "4.3"], false, &[(0.0, 0.002), (1.0, 0.001)]),
            chart(&["1"], false, &[(0.0, 0.0)]),
        ] {
            let svg = chart.to_svg();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("a &lt; b &amp; c") && svg.contains("stroke-dasharray"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let bars = chart(&["a", "b"], false, &[(0.0, 1.0), (1.0, 2.0)]).to_svg();
        assert_eq!(bars.matches("fill=\"#0072b2\"").count(), 2);
    }

    #[test]
    fn steps_are_round() {
        for (step, round) in [(0.7, 1.0), (1.1, 2.0), (3.0, 5.0), (6.0, 10.0), (0.03, 0.05), (0.0, 1.0)] {
            assert!((round_step(step) - round).abs() < 1e-12, "{step}: {}", round_step(step));
        }
        assert_eq!([short(0.25), short(1234.4), short(2.0), short(0.0)], ["0.25", "1234", "2", "0"]);
    }
}
