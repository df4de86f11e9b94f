//! The parts of a `.plan` file.

use std::sync::Arc;

use kelpie_compile::plan::Plan;
use kelpie_compile::plan::text::{Table, parse, parse_fields, parse_row};
use kelpie_compile::types::{Field, Literal};
use kelpie_engine::TableSource;

use super::tables::batch;
use crate::common;

/// Tables and what is asked of them.
pub struct File {
    pub sources: Vec<Arc<dyn TableSource>>,
    pub cases: Vec<Case>,
}

/// A plan and what is known of it.
pub struct Case {
    /// The line of its title.
    pub line: usize,
    pub title: String,
    pub plan: Plan,
    pub answer: Answer,
    pub variants: Vec<ForcedChoice>,
    pub facts: Vec<Stated>,
    /// Lanes of the interpreter's warps.
    pub lanes: Vec<u32>,
}

pub enum Answer {
    Rows {
        rows: Vec<Vec<Literal>>,
        ordered: bool,
    },
    /// An error that has this text.
    Error(String),
}

/// A choice that is forced, on one device where it is named.
pub struct ForcedChoice {
    pub device: Option<String>,
    pub axis: String,
    pub value: String,
}

/// A fact, on one device where it is named.
pub struct Stated {
    pub device: Option<String>,
    pub fact: Fact,
}

#[derive(Clone)]
pub enum Fact {
    /// `axis = value` is chosen somewhere.
    Choice { axis: String, value: String },
    /// How many pipelines there are.
    Pipelines(usize),
    /// Whether a pipeline's name has this part.
    Pipeline { part: String, is_there: bool },
}

/// A line that begins at the left, and the lines below it that do not.
struct Section<'a> {
    line: usize,
    word: &'a str,
    /// What stands behind the word: `cpu: axis = value`, `: title`, a table's name.
    rest: &'a str,
    lines: Vec<Numbered<'a>>,
}

#[derive(Clone, Copy)]
struct Numbered<'a> {
    line: usize,
    text: &'a str,
}

/// The lanes where nothing is said: few, so that a few rows are in several warps.
const LANES: [u32; 1] = [4];

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() || text.starts_with("--") {
            continue;
        }
        match sections.last_mut() {
            Some(section) if text.starts_with(' ') => section.lines.push(Numbered { line, text }),
            _ => {
                let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
                let (word, rest) = text.split_at(end);
                sections.push(Section { line, word, rest: rest.trim(), lines: Vec::new() });
            }
        }
    }
    sections
}

/// A line of a file as a text in which it has the number that it has in the file.
fn placed(line: &Numbered<'_>) -> String {
    format!("{}{}", "\n".repeat(line.line - 1), line.text)
}

impl<'a> Section<'a> {
    fn error<T>(&self, message: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("{}: {message}", self.line))
    }

    /// The text of its lines, each with the number that it has in the file.
    fn block(&self) -> String {
        let mut text = String::new();
        let mut at = 1;
        for line in &self.lines {
            text.push_str(&"\n".repeat(line.line - at));
            text.push_str(line.text);
            at = line.line;
        }
        text
    }

    /// The device before the colon, where there is one, and what stands behind it.
    fn stated(&self) -> Result<(Option<String>, &'a str), String> {
        match self.rest.split_once(':') {
            Some((device, text)) if matches!(device.trim(), "" | "cpu" | "simt" | "cuda") => {
                let device = Some(device.trim().to_string()).filter(|device| !device.is_empty());
                Ok((device, text.trim()))
            }
            _ => self.error("expected a colon, or cpu, simt or cuda before one"),
        }
    }

    fn rows(&self, fields: &[Field]) -> Result<Vec<Vec<Literal>>, String> {
        let rows = self.lines.iter().skip(1).map(|line| parse_row(&placed(line), fields));
        rows.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    fn table(&self) -> Result<Table, String> {
        let Some(first) = self.lines.first() else { return self.error("a table has columns below it") };
        let fields = parse_fields(&placed(first)).map_err(|error| error.to_string())?;
        Ok(Table { name: self.rest.into(), fields })
    }

    /// `axis = value`
    fn choice(&self, text: &str) -> Result<(String, String), String> {
        match text.split_once('=') {
            Some((axis, value)) => Ok((axis.trim().into(), value.trim().into())),
            None => self.error("an axis and its value are `axis = value`"),
        }
    }

    fn fact(&self, text: &str) -> Result<Fact, String> {
        if let Some(part) = text.strip_prefix("pipeline ") {
            return Ok(Fact::Pipeline { part: part.into(), is_there: true });
        }
        if let Some(part) = text.strip_prefix("no pipeline ") {
            return Ok(Fact::Pipeline { part: part.into(), is_there: false });
        }
        let (axis, value) = self.choice(text)?;
        match (axis.as_str(), value.parse()) {
            ("pipelines", Ok(count)) => Ok(Fact::Pipelines(count)),
            _ => Ok(Fact::Choice { axis, value }),
        }
    }

    /// The rows of an answer below the names of its columns.
    fn answer(&self, plan: &Plan) -> Result<Answer, String> {
        let ordered = match self.rest {
            "" => false,
            "ordered" => true,
            other => return self.error(format!("an answer is `ordered` or not, `{other}` is neither")),
        };
        let fields = plan.fields();
        let names = fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
        match self.lines.first() {
            Some(line) if line.text.trim() == names => {
                Ok(Answer::Rows { rows: self.rows(&fields)?, ordered })
            }
            Some(line) => Err(format!("{}: the plan's columns are {names}", line.line)),
            None => self.error(format!("an answer has the names of columns: {names}")),
        }
    }
}

impl File {
    /// The file of a text; what is wrong begins with the number of its line.
    pub fn parse(text: &str) -> Result<File, String> {
        let sections = sections(text);
        let (mut tables, mut sources) = (Vec::new(), Vec::new());
        let first_plan = sections.iter().position(|section| section.word == "plan").unwrap_or(sections.len());
        for section in &sections[..first_plan] {
            if section.word != "table" {
                return section.error(format!("`{}` stands before the first plan", section.word));
            }
            let table = section.table()?;
            let rows = section.rows(&table.fields)?;
            sources.push(Arc::new(common::Table(vec![batch(&table.fields, &rows)])) as Arc<dyn TableSource>);
            tables.push(table);
        }
        let is_title = |section: &Section<'_>| section.word == "plan";
        let cases = sections[first_plan..].chunk_by(|_, next| !is_title(next));
        let cases: Vec<Case> = cases.map(|sections| case(sections, &tables)).collect::<Result<_, _>>()?;
        if cases.is_empty() { Err("1: a file has a plan".into()) } else { Ok(File { sources, cases }) }
    }
}

/// The case that begins with a plan.
fn case(sections: &[Section<'_>], tables: &[Table]) -> Result<Case, String> {
    let Some((title, others)) = sections.split_first() else { return Err("1: a file has a plan".into()) };
    let plan = parse(&title.block(), tables).map_err(|error| error.to_string())?;
    let (mut answer, mut variants, mut facts, mut lanes) = (None, Vec::new(), Vec::new(), LANES.to_vec());
    for section in others {
        match section.word {
            "answer" => answer = Some(section.answer(&plan)?),
            "error" => {
                let (_, text) = section.stated()?;
                if text.is_empty() {
                    return section.error("an error has a text");
                }
                answer = Some(Answer::Error(text.into()));
            }
            "variant" => {
                let (device, text) = section.stated()?;
                let (axis, value) = section.choice(text)?;
                variants.push(ForcedChoice { device, axis, value });
            }
            "compiles_as" => {
                let (device, text) = section.stated()?;
                facts.push(Stated { device, fact: section.fact(text)? });
            }
            "lanes" => {
                let parsed = section.stated()?.1.split_whitespace().map(str::parse).collect();
                lanes = match parsed {
                    Ok(lanes) => lanes,
                    Err(_) => return section.error("lanes are numbers"),
                };
            }
            other => return section.error(format!("`{other}` is nothing that a file has")),
        }
    }
    let Some(answer) = answer else { return title.error("a plan has an answer or an error") };
    let title_text = title.rest.trim_start_matches(':').trim().to_string();
    Ok(Case { line: title.line, title: title_text, plan, answer, variants, facts, lanes })
}
