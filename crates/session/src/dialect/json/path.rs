//! Where a value lies in another one: a key, a number, a path such as `$.a[0]`, or a pointer such as `/a/0`.

use datafusion::common::plan_err;
use datafusion::error::Result;

use super::document::{Json, Kind};

/// A step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Place(i64),
    /// A part of a pointer, which is a place where it meets an array.
    Either(String),
    AnyKey,
    AnyPlace,
}

/// The steps to a value, or to several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// The value itself.
    pub fn whole() -> Path {
        Path { steps: vec![] }
    }

    pub fn place(place: i64) -> Path {
        Path { steps: vec![Step::Place(place)] }
    }

    pub fn parsed(text: &str) -> Result<Path> {
        if let Some(steps) = text.strip_prefix('$') {
            return Path::of_steps(steps, text);
        }
        let steps = match text.strip_prefix('/') {
            Some(parts) => parts
                .split('/')
                .map(|part| Step::Either(part.replace("~1", "/").replace("~0", "~")))
                .collect(),
            None if text.is_empty() => vec![],
            None => vec![Step::Key(text.to_string())],
        };
        Ok(Path { steps })
    }

    fn of_steps(mut rest: &str, text: &str) -> Result<Path> {
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(key) = rest.strip_prefix('.') {
                let (step, behind) = match key.strip_prefix('"') {
                    Some(quoted) => match quoted.split_once('"') {
                        Some((key, behind)) => (Step::Key(key.to_string()), behind),
                        None => return plan_err!("the path '{text}': a quote has no end"),
                    },
                    None => {
                        let end = key.find(['.', '[']).unwrap_or(key.len());
                        let (key, behind) = key.split_at(end);
                        let step = if key == "*" { Step::AnyKey } else { Step::Key(key.to_string()) };
                        (step, behind)
                    }
                };
                match &step {
                    Step::Key(key) if key == "**" || key.is_empty() && behind.starts_with('.') => {
                        return plan_err!("the path '{text}': steps of any depth are not supported");
                    }
                    Step::Key(key) if key.is_empty() && !rest.starts_with(".\"") => {
                        return plan_err!("the path '{text}': no key stands behind a point");
                    }
                    _ => {}
                }
                steps.push(step);
                rest = behind;
            } else if let Some((place, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            {
                let number =
                    place.strip_prefix('#').filter(|number| number.starts_with('-')).unwrap_or(place);
                steps.push(match number.trim() {
                    "*" => Step::AnyPlace,
                    number => match number.parse() {
                        Ok(number) => Step::Place(number),
                        Err(_) => {
                            return plan_err!(
                                "the path '{text}': [{place}] is no place such as [0], [-1] or [*]"
                            );
                        }
                    },
                });
                rest = behind;
            } else {
                return plan_err!("the path '{text}': {rest} is neither .key nor [0]");
            }
        }
        Ok(Path { steps })
    }

    /// Whether it may lead to several values.
    pub fn has_several(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::AnyKey | Step::AnyPlace))
    }

    /// The first value that it leads to.
    pub fn find<'a>(&self, value: Json<'a>) -> Option<Json<'a>> {
        self.steps.iter().try_fold(value, |value, step| match step {
            Step::Key(key) => value.field(key),
            Step::Place(place) => value.place(*place),
            Step::Either(name) if value.kind() == Kind::Array => {
                value.place(name.parse::<u32>().ok()?.into())
            }
            Step::Either(name) => value.field(name),
            Step::AnyKey | Step::AnyPlace => None,
        })
    }

    /// All values that it leads to.
    pub fn find_all<'a>(&self, value: Json<'a>) -> Vec<Json<'a>> {
        let mut found = vec![value];
        for step in &self.steps {
            let wanted = match step {
                Step::AnyKey => Kind::Object,
                Step::AnyPlace => Kind::Array,
                step => {
                    let one = Path { steps: vec![step.clone()] };
                    found = found.into_iter().filter_map(|value| one.find(value)).collect();
                    continue;
                }
            };
            let of_kind = found.into_iter().filter(|value| value.kind() == wanted);
            found = of_kind.flat_map(|value| value.elements().map(|element| element.value)).collect();
        }
        found
    }
}
