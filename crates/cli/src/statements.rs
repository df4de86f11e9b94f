//! Cuts text into statements at `;`, outside quotes and comments.

/// After the `;` that ends the first statement of a text; nothing where none does.
pub fn end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut position = 0;
    while position < bytes.len() {
        match bytes[position] {
            b'\'' if is_escaped(bytes, position) => position = skip_escaped(bytes, position),
            quote @ (b'\'' | b'"' | b'`') => position = skip_quoted(bytes, position, quote),
            b'$' if !follows_word(bytes, position) => position = skip_dollars(bytes, position),
            b'-' if bytes.get(position + 1) == Some(&b'-') => position = skip_line(bytes, position),
            b'/' if bytes.get(position + 1) == Some(&b'*') => position = skip_comment(bytes, position),
            b';' => return Some(position + 1),
            _ => position += 1,
        }
    }
    None
}

/// All statements of a text, also one without `;` at the end.
pub fn all(text: &str) -> Vec<String> {
    let (mut statements, mut rest) = (Vec::new(), text);
    while let Some(end) = end(rest) {
        push(&rest[..end - 1], &mut statements);
        rest = &rest[end..];
    }
    push(rest, &mut statements);
    statements
}

/// A text without the byte order mark that some editors put before it.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The bytes of white space and comments that a text begins with.
pub fn blank(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut position = 0;
    while position < bytes.len() {
        match bytes[position] {
            b'-' if bytes.get(position + 1) == Some(&b'-') => position = skip_line(bytes, position),
            b'/' if bytes.get(position + 1) == Some(&b'*') => position = skip_comment(bytes, position),
            byte if byte.is_ascii_whitespace() => position += 1,
            _ => break,
        }
    }
    position
}

/// Whether a text has nothing but white space and comments.
pub fn is_blank(text: &str) -> bool {
    blank(text) == text.len()
}

/// Whether a text that is blank ends within a comment of `/*`.
pub fn is_open_comment(text: &str) -> bool {
    // One more letter is seen, unless it is part of a comment; a line ends those of `--`.
    is_blank(text) && is_blank(&format!("{text}\nx"))
}

fn push(statement: &str, statements: &mut Vec<String>) {
    if !is_blank(statement) {
        statements.push(statement.trim().to_string());
    }
}

/// After a quoted text; a doubled quote is two quoted texts side by side, with the same end.
fn skip_quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let end = bytes[start + 1..].iter().position(|b| *b == quote);
    end.map_or(bytes.len(), |offset| start + 1 + offset + 1)
}

/// Whether the quote here begins a text with escapes: `E'…'`.
fn is_escaped(bytes: &[u8], quote: usize) -> bool {
    quote > 0 && matches!(bytes[quote - 1], b'e' | b'E') && !follows_word(bytes, quote - 1)
}

/// After `E'…'`, in which a backslash takes its meaning from the next character.
fn skip_escaped(bytes: &[u8], start: usize) -> usize {
    let mut position = start + 1;
    while position < bytes.len() {
        match bytes[position] {
            b'\\' => position += 2,
            b'\'' => return position + 1,
            _ => position += 1,
        }
    }
    bytes.len()
}

/// After `$$…$$` or `$tag$…$tag$`; after the `$` where it begins neither.
fn skip_dollars(bytes: &[u8], start: usize) -> usize {
    let tag = bytes[start + 1..].iter().take_while(|b| is_word(**b)).count();
    let delimiter = match bytes.get(start + 1 + tag) {
        Some(b'$') => &bytes[start..start + tag + 2],
        _ => return start + 1,
    };
    let body = start + delimiter.len();
    let end = bytes[body..].windows(delimiter.len()).position(|window| window == delimiter);
    end.map_or(bytes.len(), |offset| body + offset + delimiter.len())
}

fn follows_word(bytes: &[u8], position: usize) -> bool {
    position > 0 && (is_word(bytes[position - 1]) || matches!(bytes[position - 1], b'$' | b'@' | b'#'))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn skip_line(bytes: &[u8], start: usize) -> usize {
    let end = bytes[start..].iter().position(|b| *b == b'\n');
    end.map_or(bytes.len(), |offset| start + offset + 1)
}

/// After a comment; comments nest.
fn skip_comment(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut position) = (0, start);
    while position < bytes.len() {
        match &bytes[position..] {
            [b'/', b'*', ..] => (depth, position) = (depth + 1, position + 2),
            [b'*', b'/', ..] => {
                (depth, position) = (depth - 1, position + 2);
                if depth == 0 {
                    return position;
                }
            }
            _ => position += 1,
        }
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_quotes_and_comments() {
        let cases: [(&str, &[&str], &str); 17] = [
            ("", &[], ""),
            ("select 1", &[], "select 1"),
            ("select 1; select 2 ;\n", &["select 1", "select 2"], "\n"),
            (";;", &[], ""),
            ("select ';', 'it''s;'; x", &["select ';', 'it''s;'"], " x"),
            ("select \"a;b\", `c;`;", &["select \"a;b\", `c;`"], ""),
            ("select 1 -- no; end\n;", &["select 1 -- no; end"], ""),
            ("/* a; /* b; */ c; */ select 'ü;';", &["/* a; /* b; */ c; */ select 'ü;'"], ""),
            ("select 'open; ", &[], "select 'open; "),
            ("select $$a;b$$; x", &["select $$a;b$$"], " x"),
            ("select $t1$a;$$;$t$b$t1$; x", &["select $t1$a;$$;$t$b$t1$"], " x"),
            ("select $ü$;$ü$;", &["select $ü$;$ü$"], ""),
            ("select $$open; ", &[], "select $$open; "),
            ("select $1; a$b;$c", &["select $1", "a$b"], "$c"),
            (r"select E'a\'; b', e'\\'; x", &[r"select E'a\'; b', e'\\'"], " x"),
            (r"select 'a\'; b, name'\'; x", &[r"select 'a\'", r"b, name'\'"], " x"),
            (r"select e'open\'; ", &[], r"select e'open\'; "),
        ];
        for (text, statements, rest) in cases {
            let mut expected: Vec<&str> = statements.to_vec();
            expected.extend(Some(rest.trim()).filter(|rest| !is_blank(rest)));
            assert_eq!(all(text), expected, "{text}");
            let ends = std::iter::successors(Some(text), |text| end(text).map(|end| &text[end..]));
            assert_eq!(ends.last(), Some(rest), "{text}");
        }
        assert_eq!(all("a; b"), ["a", "b"]);
        assert_eq!(all("a; -- b"), ["a"]);
        assert!(is_blank(" /* x */ -- y") && !is_blank("- "));
    }
}
