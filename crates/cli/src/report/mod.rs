//! `kelpie explain --html`: what queries did, on one page that needs nothing else. It is readable without scripts, of which it has none;
//! all texts are escaped.

mod code;
mod graph;

use std::fmt::Write;

use kelpie_session::units::{share, time};
use kelpie_session::{Decision, PipelineFacts, QueryReport};

/// What the page says of a statement.
pub struct Page {
    pub statement: String,
    pub report: QueryReport,
    /// Its physical plan, where it has one.
    pub plan: Option<String>,
    /// The code of its kernels, as `--stage code` shows it; absent where nothing is compiled.
    pub code: Option<String>,
}

/// The page of some statements.
pub fn page(pages: &[Page]) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    // Whatever a text might bring along: nothing is loaded and nothing runs.
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    );
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str("<title>Kelpie: what a query did</title>\n<style>\n");
    out.push_str(include_str!("page.css"));
    out.push_str("</style>\n</head>\n<body>\n");
    for (number, page) in (1..).zip(pages) {
        let title = match pages.len() {
            1 => "What the query did".to_string(),
            all => format!("Statement {number} of {all}"),
        };
        let _ = writeln!(out, "<section>\n<h1>{title}</h1>");
        write_statement(&mut out, page);
        out.push_str("</section>\n");
    }
    let _ = writeln!(out, "<footer>kelpie {}</footer>\n</body>\n</html>", env!("CARGO_PKG_VERSION"));
    out
}

fn write_statement(out: &mut String, page: &Page) {
    let report = &page.report;
    let _ = writeln!(out, "<pre class=\"sql\">{}</pre>", escape(&page.statement));
    write_times(out, report);
    if !report.pipelines.is_empty() {
        out.push_str("<h2>Pipelines</h2>\n");
        let _ = writeln!(out, "<div class=\"wide\">{}</div>", graph::svg(&report.pipelines));
        write_pipelines(out, &report.pipelines);
    }
    write_reasons(out, "What was not compiled, and why", &report.fell_back);
    write_reasons(out, "What else was done", &report.steps);
    write_decisions(out, &report.decisions);
    if let Some(code) = &page.code {
        write_code(out, code, &report.pipelines);
    }
    if let Some(plan) = &page.plan {
        out.push_str("<h2>Plan</h2>\n");
        write_folded(out, "The physical plan", plan);
    }
}

/// The whole time, and a bar of what it went to.
fn write_times(out: &mut String, report: &QueryReport) {
    out.push_str("<div class=\"facts\">");
    let devices = match report.devices.is_empty() {
        true => "nothing was compiled".to_string(),
        false => report.devices.join(", "),
    };
    let kernels = format!("{} ({})", time(report.kernel_ns()), share(report.kernel_ns(), report.total_ns));
    let facts = [("time", time(report.total_ns)), ("in kernels", kernels), ("device", devices)];
    for (name, value) in facts {
        let _ = write!(out, "<div><span>{name}</span><b>{}</b></div>", escape(&value));
    }
    out.push_str("</div>\n<div class=\"bar\">");
    let all_ns = report.phases().map(|(_, time_ns)| time_ns).sum::<u64>().max(1);
    for (colour, (name, time_ns)) in report.phases().enumerate() {
        let width = time_ns as f64 / all_ns as f64 * 100.0;
        let _ = write!(
            out,
            "<i class=\"c{}\" style=\"width:{width:.2}%\" title=\"{name} {}\"></i>",
            colour % 7,
            time(time_ns)
        );
    }
    out.push_str("</div>\n<ul class=\"legend\">");
    for (colour, (name, time_ns)) in report.phases().enumerate() {
        let _ = write!(
            out,
            "<li><i class=\"c{}\"></i>{name} {} ({})</li>",
            colour % 7,
            time(time_ns),
            share(time_ns, all_ns)
        );
    }
    out.push_str("</ul>\n");
}

/// A table of the pipelines: a column a fact.
fn write_pipelines(out: &mut String, pipelines: &[PipelineFacts]) {
    let mut columns: Vec<&str> = Vec::new();
    for fact in pipelines.iter().flat_map(|pipeline| &pipeline.facts) {
        if !columns.contains(&fact.name) {
            columns.push(fact.name);
        }
    }
    out.push_str("<div class=\"wide\"><table>\n<tr><th></th><th>pipeline</th><th class=\"n\">share</th>");
    for name in &columns {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr>\n");
    let all_ns = pipelines.iter().map(|pipeline| pipeline.run_ns).sum::<u64>().max(1);
    for (number, pipeline) in pipelines.iter().enumerate() {
        let width = pipeline.run_ns as f64 / all_ns as f64 * 100.0;
        let _ = write!(
            out,
            "<tr><td class=\"n\">{number}</td><td class=\"name\">{}</td><td class=\"n\">{}<span class=\"share\" \
             style=\"width:{width:.1}%\"></span></td>",
            escape(&pipeline.name),
            escape(&pipeline.share)
        );
        for name in &columns {
            let fact = pipeline.facts.iter().find(|fact| fact.name == *name);
            let value = fact.map_or("", |fact| &fact.value);
            let note = fact.and_then(|fact| fact.note.as_ref());
            let note = note.map_or(String::new(), |note| format!("<small>{}</small>", escape(note)));
            let _ = write!(out, "<td class=\"n\">{}{note}</td>", escape(value));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn write_reasons(out: &mut String, title: &str, reasons: &[String]) {
    if reasons.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2>\n<ul class=\"why bad\">");
    for reason in reasons {
        let _ = writeln!(out, "<li>{}</li>", escape(reason));
    }
    out.push_str("</ul>\n");
}

fn write_decisions(out: &mut String, decisions: &[Decision]) {
    if decisions.is_empty() {
        return;
    }
    out.push_str("<h2>Decisions</h2>\n<div class=\"wide\"><table>\n");
    out.push_str("<tr><th>choice</th><th>taken</th><th>why, and what else there is</th></tr>\n");
    for decision in decisions {
        let _ = write!(
            out,
            "<tr><td>{}</td><td><b>{}</b></td><td>{}",
            escape(&decision.name),
            escape(&decision.value),
            escape(&decision.why)
        );
        if !decision.others.is_empty() {
            let names: Vec<&str> = decision.others.iter().map(|(value, _)| value.as_str()).collect();
            let _ = write!(
                out,
                "<details><summary>instead of {}</summary><ul class=\"why\">",
                escape(&names.join(", "))
            );
            for (value, lacks) in &decision.others {
                let lacks =
                    lacks.as_ref().map_or("possible".into(), |lacks| format!("not possible: {lacks}"));
                let _ = write!(out, "<li>{}: {}</li>", escape(value), escape(&lacks));
            }
            out.push_str("</ul></details>");
        }
        out.push_str("</td></tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn write_code(out: &mut String, text: &str, pipelines: &[PipelineFacts]) {
    out.push_str("<h2>Code of the kernels</h2>\n");
    for part in code::parts(text, pipelines) {
        write_folded(out, &part.title, part.code);
    }
}

fn write_folded(out: &mut String, title: &str, text: &str) {
    let _ = writeln!(
        out,
        "<details><summary>{}</summary><pre>{}</pre></details>",
        escape(title),
        escape(text.trim_end())
    );
}

/// A text within HTML, also within quotes. Control characters, and those that turn the direction of text, are shown.
fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            '\n' | '\t' => shown.push(letter),
            '\r' => {}
            letter if letter.is_control() => shown.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.extend(letter.escape_unicode()),
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelpie_session::Fact;

    #[test]
    fn no_text_gets_out_of_its_place() {
        let bad = "<script>alert('x')</script>&\"\u{202e}\u{0}ü漢";
        let pipeline = PipelineFacts {
            name: bad.into(),
            run_ns: 5,
            share: "100.0 %".into(),
            facts: vec![Fact { name: "estimate", value: bad.into(), note: Some(bad.into()) }],
            rows_out: Some(bad.into()),
            inputs: vec![],
        };
        let second = PipelineFacts { inputs: vec![0], ..pipeline.clone() };
        let decision = Decision {
            name: bad.into(),
            value: bad.into(),
            why: bad.into(),
            others: vec![(bad.into(), Some(bad.into()))],
        };
        let report = QueryReport {
            devices: vec![bad.into()],
            total_ns: 10,
            pipelines: vec![pipeline, second],
            decisions: vec![decision],
            steps: vec![bad.into()],
            fell_back: vec![bad.into()],
            ..QueryReport::default()
        };
        let statement = || bad.to_string();
        let pages =
            [Page { statement: statement(), report, plan: Some(statement()), code: Some(statement()) }];
        let text = page(&pages);
        assert!(!text.contains("<script") && !text.contains('\u{202e}') && !text.contains('\u{0}'), "{text}");
        let shown = text.matches("&lt;script&gt;").count();
        assert!(shown >= 14, "{shown}: {text}");
        assert!(text.contains("ü漢") && !text.contains("http://") && !text.contains("https://"));
    }

    #[test]
    fn a_statement_without_pipelines_has_a_page() {
        let page_of = |report| Page { statement: "set a = 1".into(), report, plan: None, code: None };
        let text = page(&[page_of(QueryReport::default()), page_of(QueryReport::default())]);
        assert!(text.contains("nothing was compiled") && text.contains("Statement 2 of 2"), "{text}");
    }
}
