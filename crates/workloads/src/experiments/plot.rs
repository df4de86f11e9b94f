//! Plots as SVG: lines over a numeric axis, or bars over names.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
/// Of the area of the plot.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 410.0;
/// Told apart also by those who do not see all colours (Okabe and Ito).
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#999999", "#7b3294",
    "#1b1b1b",
];
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
        for (index, line) in self.lines.iter().enumerate() {
            let colour = if line.is_floor { "#444444" } else { colours.next().unwrap_or(&"black") };
            if self.categories.is_empty() || line.is_floor {
                self.draw_line(&mut svg, line, colour, &x, &y);
            } else {
                draw_bars(&mut svg, line, colour, (bar, bars), (&x, &y));
                bar += 1;
            }
            self.draw_legend(&mut svg, index, line, colour);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self) -> (Axis, Axis) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
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

    fn draw_line(&self, svg: &mut String, line: &Line, colour: &str, x: &Axis, y: &Axis) {
        let dash = dash(line);
        let place = |(px, py): &(f64, f64)| format!("{:.1},{:.1}", x.place(*px), y.place(*py));
        let points: Vec<String> = line.points.iter().map(place).collect();
        let points = points.join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
        );
        for (px, py) in line.points.iter().filter(|_| !line.is_floor) {
            let (px, py) = (x.place(*px), y.place(*py));
            let _ = writeln!(svg, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }

    fn draw_legend(&self, svg: &mut String, index: usize, line: &Line, colour: &str) {
        let (from, to, place) = (RIGHT + 15.0, RIGHT + 40.0, TOP + 10.0 + 20.0 * index as f64);
        let dash = dash(line);
        let _ = writeln!(
            svg,
            "<line x1=\"{from}\" x2=\"{to}\" y1=\"{place}\" y2=\"{place}\" stroke=\"{colour}\" \
             stroke-width=\"3\"{dash}/>"
        );
        text(svg, (to + 6.0, place + 4.0), "start", "", &line.name);
    }
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
        let top = y.place(*value);
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
