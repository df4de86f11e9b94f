//! The code of kernels, cut where a pipeline's begins.

use kelpie_session::PipelineFacts;

/// Code that is shown together.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub title: String,
    pub code: &'a str,
}

/// The parts of a text of `kelpie explain --stage code`, one a pipeline; all of it in one where it is not of these pipelines.
pub fn parts<'a>(text: &'a str, pipelines: &[PipelineFacts]) -> Vec<Part<'a>> {
    let (mut starts, mut at) = (Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        if let Some(pipeline) = pipelines.get(starts.len())
            && is_heading(line, &pipeline.name)
        {
            starts.push((at, at + line.len()));
        }
        at += line.len();
    }
    if starts.len() != pipelines.len() || starts.is_empty() {
        return vec![Part { title: "All kernels".into(), code: text }];
    }
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([text.len()]);
    let parts = starts.iter().zip(ends).enumerate().zip(pipelines);
    parts
        .map(|((number, ((_, start), end)), pipeline)| Part {
            title: format!("{number}: {}", pipeline.name),
            code: &text[*start..end],
        })
        .collect()
}

/// `-- pipeline 3: scan t → groups`.
fn is_heading(line: &str, name: &str) -> bool {
    let heading = line.trim_end().strip_prefix("-- pipeline ").and_then(|rest| rest.split_once(": "));
    heading.is_some_and(|(number, named)| number.parse::<usize>().is_ok() && named == name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(name: &str) -> PipelineFacts {
        let (share, facts, inputs) = (String::new(), Vec::new(), Vec::new());
        PipelineFacts { name: name.into(), run_ns: 0, share, facts, rows_out: None, inputs }
    }

    #[test]
    fn code_is_cut_where_a_pipeline_begins() {
        let text = "-- no GPU\n-- pipeline 0: scan t → groups\na\n// -- pipeline 1: no\nb\n-- pipeline 0: groups → result\nc\n";
        let pipelines = [pipeline("scan t → groups"), pipeline("groups → result")];
        let parts = parts(text, &pipelines);
        let shown: Vec<_> = parts.iter().map(|part| (part.title.as_str(), part.code)).collect();
        assert_eq!(
            shown,
            [("0: scan t → groups", "a\n// -- pipeline 1: no\nb\n"), ("1: groups → result", "c\n")]
        );
        assert_eq!(super::parts(text, &pipelines[..1])[0].title, "0: scan t → groups");
        assert_eq!(super::parts("x", &pipelines), [Part { title: "All kernels".into(), code: "x" }]);
        assert_eq!(super::parts("x", &[])[0].code, "x");
    }
}
