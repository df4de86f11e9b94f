//! The language reference keeps to the language.

use kelpie_kir::text::{parse, print};
use kelpie_kir::{Scalar, validate};

const REFERENCE: &str = include_str!("../LANGUAGE.md");

#[test]
fn its_examples_are_valid_and_printed_as_they_stand() {
    let mut examples = 0;
    for part in REFERENCE.split("```kir\n").skip(1) {
        let example = part.split("```").next().unwrap_or_default();
        let module = parse(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        let without_comments: String = example
            .lines()
            .map(|line| line.split(';').next().unwrap_or_default().trim_end())
            .filter(|line| !line.is_empty())
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(print(&module), without_comments);
        validate(module).unwrap_or_else(|error| panic!("{error}\n{example}"));
        examples += 1;
    }
    assert!(examples > 0);
}

#[test]
fn it_names_every_word_of_the_language() {
    let words = "neg not popcount clz ffs floor ceil trunc round_even abs sqrt add sub mul div rem and or xor shl shr min max \
        mul_hi overflow.add eq ne lt le gt ge select convert bitcast offset field load load.ro load_bytes load_field ballot any all \
        shuffle.index shuffle.up const param shared read builtin thread_id block_id block_dim grid_dim lane_id lanes status \
        store store_bytes if else loop break continue atomic cas exchange block device barrier warp_barrier fence mark tally uniform_load call return report trap \
        global ptr splat iota load_vector load_vector.ro store_vector align compress lane reduce.add reduce.min reduce.max \
        reduce.any reduce.all reduce.count mask_bits bits_mask first_lanes i64x4 mask4";
    let mut tokens: Vec<&str> =
        REFERENCE.split(|c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c))).collect();
    tokens.extend(tokens.clone().iter().map(|token| token.trim_end_matches('.')));
    for word in words.split_whitespace().chain(Scalar::ALL.map(Scalar::name)) {
        assert!(tokens.contains(&word), "{word} is not in the language reference");
    }
}
