//! The graph of pipelines as SVG: what fills a table or a store stands above what reads it.

use std::fmt::Write;

use kelpie_session::PipelineFacts;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::escape;

/// Sizes in pixels.
const BOX_WIDTH: usize = 216;
const LINE: usize = 16;
const HEAD: usize = 26;
const PADDING: usize = 9;
const BESIDE: usize = 26;
const BELOW: usize = 38;
/// Places of a line of a box, and lines of a box: what is longer is cut, and whole in its title.
const PLACES: usize = 31;
const MOST_LINES: usize = 9;

/// A pipeline's box.
struct Node {
    lines: Vec<String>,
    layer: usize,
    x: usize,
    y: usize,
    height: usize,
}

/// The graph.
pub fn svg(pipelines: &[PipelineFacts]) -> String {
    let nodes = placed(pipelines);
    let width = nodes.iter().map(|node| node.x + BOX_WIDTH).max().unwrap_or(0) + 2;
    let height = nodes.iter().map(|node| node.y + node.height).max().unwrap_or(0) + 2;
    let mut out = format!(
        "<svg role=\"img\" aria-label=\"pipelines\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"-1 -1 {width} {height}\">"
    );
    for (place, pipeline) in pipelines.iter().enumerate() {
        for input in &pipeline.inputs {
            if let (Some(from), Some(to)) = (nodes.get(*input), nodes.get(place)) {
                write_edge(&mut out, from, to);
            }
        }
    }
    let all_ns = pipelines.iter().map(|pipeline| pipeline.run_ns).sum::<u64>().max(1);
    for (number, (node, pipeline)) in nodes.iter().zip(pipelines).enumerate() {
        write_box(&mut out, node, (number, pipeline), pipeline.run_ns as f64 / all_ns as f64);
    }
    out.push_str("</svg>");
    out
}

fn write_edge(out: &mut String, from: &Node, to: &Node) {
    let (x0, y0) = (from.x + BOX_WIDTH / 2, from.y + from.height);
    let (x1, y1) = (to.x + BOX_WIDTH / 2, to.y);
    let bend = (y1.saturating_sub(y0)) / 2;
    let _ = write!(
        out,
        "<path d=\"M{x0} {y0}C{x0} {},{x1} {},{x1} {}\"/><path class=\"tip\" d=\"M{x1} {y1}l-4 -8h8z\"/>",
        y0 + bend,
        y1.saturating_sub(bend),
        y1.saturating_sub(6)
    );
}

fn write_box(out: &mut String, node: &Node, (number, pipeline): (usize, &PipelineFacts), share: f64) {
    let Node { x, y, height, .. } = node;
    let _ = write!(out, "<g><title>{}</title>", escape(&pipeline.name));
    let _ = write!(
        out,
        "<rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{height}\" rx=\"6\"/>"
    );
    let heat = (share.clamp(0.0, 1.0) * BOX_WIDTH as f64).round();
    let _ = write!(out, "<rect class=\"heat\" x=\"{x}\" y=\"{y}\" width=\"{heat}\" height=\"4\" rx=\"2\"/>");
    let (left, right, baseline) = (x + PADDING, x + BOX_WIDTH - PADDING, y + HEAD - 6);
    let _ = write!(out, "<text class=\"head\" x=\"{left}\" y=\"{baseline}\">pipeline {number}</text>");
    let _ = write!(
        out,
        "<text class=\"head\" x=\"{right}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>",
        escape(&pipeline.share)
    );
    for (line, text) in node.lines.iter().enumerate() {
        let baseline = y + HEAD + LINE * (line + 1) - 5;
        let _ = write!(out, "<text x=\"{left}\" y=\"{baseline}\">{}</text>", escape(text));
    }
    if let Some(rows) = &pipeline.rows_out {
        let baseline = y + height - PADDING;
        let rows = escape(&cut(rows, PLACES));
        let _ = write!(
            out,
            "<text class=\"faint\" x=\"{right}\" y=\"{baseline}\" text-anchor=\"end\">makes {rows}</text>"
        );
    }
    out.push_str("</g>");
}

/// The boxes in layers: each as low as what reads it allows, so that lines are short.
fn placed(pipelines: &[PipelineFacts]) -> Vec<Node> {
    let mut depth = vec![0; pipelines.len()];
    // Inputs come before what reads them.
    for (place, pipeline) in pipelines.iter().enumerate().rev() {
        for input in pipeline.inputs.iter().filter(|input| **input < place) {
            depth[*input] = depth[*input].max(depth[place] + 1);
        }
    }
    let deepest = depth.iter().max().copied().unwrap_or(0);
    let mut nodes: Vec<Node> = pipelines
        .iter()
        .zip(&depth)
        .map(|(pipeline, depth)| {
            let lines = lines(&pipeline.name);
            let made = usize::from(pipeline.rows_out.is_some());
            let height = HEAD + LINE * (lines.len() + made) + PADDING;
            Node { lines, layer: deepest - depth, x: 0, y: 0, height }
        })
        .collect();
    let widest = (0..=deepest).map(|layer| in_layer(&nodes, layer).len()).max().unwrap_or(0);
    let mut y = 0;
    for layer in 0..=deepest {
        let members = in_layer(&nodes, layer);
        // A layer of fewer boxes stands in the middle.
        let mut x = (widest - members.len()) * (BOX_WIDTH + BESIDE) / 2;
        let height = members.iter().map(|place| nodes[*place].height).max().unwrap_or(0);
        for place in members {
            (nodes[place].x, nodes[place].y) = (x, y);
            x += BOX_WIDTH + BESIDE;
        }
        y += height + BELOW;
    }
    nodes
}

fn in_layer(nodes: &[Node], layer: usize) -> Vec<usize> {
    (0..nodes.len()).filter(|place| nodes[*place].layer == layer).collect()
}

/// The steps of a pipeline, a line each.
fn lines(name: &str) -> Vec<String> {
    let steps: Vec<&str> = name.split(" → ").collect();
    let shown = if steps.len() > MOST_LINES { MOST_LINES - 1 } else { steps.len() };
    let arrow = |place: usize| if place == 0 { "" } else { "→ " };
    let mut lines: Vec<String> = steps
        .iter()
        .take(shown)
        .enumerate()
        .map(|(place, step)| cut(&format!("{}{step}", arrow(place)), PLACES))
        .collect();
    if shown < steps.len() {
        lines.push(format!("→ … {} more", steps.len() - shown));
    }
    lines
}

/// A text in so many places.
fn cut(text: &str, places: usize) -> String {
    let text = text.replace('\n', " ");
    if text.width() <= places {
        return text;
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= places
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(name: &str, inputs: &[usize]) -> PipelineFacts {
        let rows_out = Some("1,000".into());
        PipelineFacts {
            name: name.into(),
            run_ns: 1,
            share: "25.0 %".into(),
            facts: Vec::new(),
            rows_out,
            inputs: inputs.into(),
        }
    }

    #[test]
    fn what_fills_stands_above_what_reads_and_nothing_overlaps() {
        let pipelines = [
            pipeline("scan d → store", &[]),
            pipeline("stored rows → index", &[0]),
            pipeline("scan e → filter → store", &[]),
            pipeline("scan t → probe → probe → groups", &[1, 2]),
            pipeline("groups → result", &[3]),
        ];
        let nodes = placed(&pipelines);
        for (place, pipeline) in pipelines.iter().enumerate() {
            for input in &pipeline.inputs {
                assert!(nodes[*input].y + nodes[*input].height < nodes[place].y);
            }
        }
        for (place, node) in nodes.iter().enumerate() {
            for other in &nodes[place + 1..] {
                let beside = node.x + BOX_WIDTH <= other.x || other.x + BOX_WIDTH <= node.x;
                let above = node.y + node.height <= other.y || other.y + other.height <= node.y;
                assert!(beside || above);
            }
        }
        // As low as it may be: beside the index that is read with it.
        assert_eq!(nodes[2].layer, nodes[1].layer);
        let text = svg(&pipelines);
        assert_eq!(text.matches("<path d=").count(), 4);
        assert_eq!(svg(&[]).matches("<g>").count(), 0);
    }

    #[test]
    fn long_names_are_cut() {
        let many = vec!["filter"; 20].join(" → ");
        let lines = lines(&many);
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MOST_LINES, "→ … 12 more"));
        assert!(cut(&"漢".repeat(40), PLACES).width() <= PLACES);
        assert_eq!(cut("short", PLACES), "short");
    }
}
