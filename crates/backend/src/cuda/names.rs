//! Names: those of the module where C++ allows them, with underscores appended where it does not.

use std::collections::HashSet;

/// Words that a parameter, variable, array or field cannot be called.
const RESERVED: &[&str] = &[
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "blockDim", "blockIdx", "bool",
    "break", "case", "catch", "char", "char16_t", "char32_t", "class", "compl", "const", "const_cast",
    "constexpr", "continue", "decltype", "default", "delete", "do", "double", "double2", "dynamic_cast",
    "else", "enum", "explicit", "export", "extern", "false", "float", "float2", "float4", "for", "friend",
    "f32", "f64", "goto", "gridDim", "i128", "i16", "i32", "i64", "i8", "if", "inline", "int", "long",
    "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq",
    "private", "protected", "public", "register", "reinterpret_cast", "restrict", "return", "short",
    "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "threadIdx", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "u128",
    "u16", "u32", "u64", "u8", "uint2", "uint4", "ulonglong2", "union", "unsigned", "using", "virtual",
    "void", "volatile", "warpSize", "wchar_t", "while", "xor", "xor_eq", "NULL", "linux", "unix",
];

/// Prefixes of the printer's own names, and of the compiler's.
const PREFIXES: &[&str] = &["kelpie_", "kernel_", "fn_", "struct_", "__"];

/// `name` with everything that is not a letter, digit or underscore replaced.
pub fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// Names of one scope, each given once.
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// A name for `name` that is free and allowed.
    pub fn unique(&mut self, name: &str) -> String {
        let mut free = identifier(name);
        if PREFIXES.iter().any(|prefix| free.starts_with(prefix))
            || is_element(&free)
            || free.starts_with(|c: char| c.is_ascii_digit())
        {
            free = format!("x_{free}");
        }
        while free.is_empty()
            || RESERVED.contains(&free.as_str())
            || is_value(&free)
            || self.taken.contains(&free)
        {
            free.push('_');
        }
        self.taken.insert(free.clone());
        free
    }
}

/// `v12`: what values are called.
fn is_value(name: &str) -> bool {
    name.strip_prefix('v').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// `v12_3` and the like: what the elements of vectors are called.
fn is_element(name: &str) -> bool {
    name.split_once('_').is_some_and(|(value, element)| is_value(value) && !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_allowed() {
        let mut names = Names::default();
        for (name, expected) in [
            ("rows", "rows"),
            ("rows", "rows_"),
            ("int", "int_"),
            ("int_", "int__"),
            ("v1", "v1_"),
            ("v", "v"),
            ("v1x", "v1x"),
            ("v1_0", "x_v1_0"),
            ("kelpie_status", "x_kelpie_status"),
            ("__x", "x___x"),
            ("1a", "x_1a"),
            ("ä", "_"),
            ("", "__"),
        ] {
            assert_eq!(names.unique(name), expected, "{name}");
        }
    }
}
