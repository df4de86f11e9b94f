//! `json_structure(j)`: the types of a value and of all within it, in JSON.

use super::document::{Json, Kind, write_letters};

/// What a value is, or what several are together.
#[derive(Debug, Clone, PartialEq)]
enum Structure {
    Null,
    Flag,
    /// A number that is not below 0.
    Unsigned,
    Signed,
    /// Whole numbers, of which some are below 0 and some perhaps above the greatest signed one.
    Huge,
    Float,
    Text,
    /// No object has all of it.
    Any,
    List(Box<Structure>),
    Object(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq)]
struct Member {
    key: String,
    structure: Structure,
}

/// The structure of a value as JSON.
pub(super) fn structure(json: Json<'_>) -> String {
    let mut text = String::new();
    Structure::of(json).write(&mut text);
    text
}

impl Structure {
    fn of(json: Json<'_>) -> Structure {
        match json.kind() {
            Kind::Null => Structure::Null,
            Kind::Flag => Structure::Flag,
            Kind::Text => Structure::Text,
            Kind::Number if json.written().parse::<u64>().is_ok() => Structure::Unsigned,
            Kind::Number if json.written().parse::<i64>().is_ok() => Structure::Signed,
            Kind::Number => Structure::Float,
            Kind::Array => {
                let elements = json.elements().map(|element| Structure::of(element.value));
                Structure::List(Box::new(elements.fold(Structure::Null, Structure::with)))
            }
            Kind::Object => {
                let mut members: Vec<Member> = Vec::new();
                for element in json.elements() {
                    let Some(key) = element.key.and_then(Json::text) else { continue };
                    // Of equal keys the first one is meant.
                    if members.iter().all(|member| member.key != key) {
                        let structure = Structure::of(element.value);
                        members.push(Member { key: key.into_owned(), structure });
                    }
                }
                // Nothing is known of an object that is empty.
                if members.is_empty() { Structure::Any } else { Structure::Object(members) }
            }
        }
    }

    /// What both are together.
    fn with(self, other: Structure) -> Structure {
        use Structure::*;
        match (self, other) {
            (Null, other) | (other, Null) => other,
            (left, right) if left == right => left,
            (List(left), List(right)) => List(Box::new(left.with(*right))),
            (Object(mut left), Object(right)) => {
                for Member { key, structure } in right {
                    match left.iter_mut().find(|member| member.key == key) {
                        Some(member) => {
                            let known = std::mem::replace(&mut member.structure, Null);
                            member.structure = known.with(structure);
                        }
                        None => left.push(Member { key, structure }),
                    }
                }
                Object(left)
            }
            (Float, Unsigned | Signed | Huge) | (Unsigned | Signed | Huge, Float) => Float,
            (Unsigned | Signed | Huge, Unsigned | Signed | Huge) => Huge,
            _ => Any,
        }
    }

    fn write(&self, text: &mut String) {
        let name = match self {
            Structure::Null => "NULL",
            Structure::Flag => "BOOLEAN",
            Structure::Unsigned => "UBIGINT",
            Structure::Signed => "BIGINT",
            Structure::Huge => "HUGEINT",
            Structure::Float => "DOUBLE",
            Structure::Text => "VARCHAR",
            Structure::Any => "JSON",
            Structure::List(element) => {
                text.push('[');
                element.write(text);
                return text.push(']');
            }
            Structure::Object(members) => {
                text.push('{');
                for (place, member) in members.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    write_letters(&member.key, text);
                    text.push(':');
                    member.structure.write(text);
                }
                return text.push('}');
            }
        };
        write_letters(name, text);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::error::Result;

    use super::*;

    fn of(text: &str) -> Result<String> {
        Ok(structure(Json::of(text, "json_structure")?))
    }

    #[test]
    fn elements_of_a_list_have_one_structure() -> Result<()> {
        assert_eq!(of(r#"[{"a":1},{"b":"x"},{"a":1.5}]"#)?, r#"[{"a":"DOUBLE","b":"VARCHAR"}]"#);
        assert_eq!(of("[1,-2]")?, r#"["HUGEINT"]"#);
        assert_eq!(of("[]")?, r#"["NULL"]"#);
        assert_eq!(of(r#"[1,"a"]"#)?, r#"["JSON"]"#);
        Ok(())
    }
}
