//! What the file tests cannot reach: modules that the validator rejects never run, so these are about the launch.

use std::cell::Cell;

use kelpie_kir::text::parse;
use kelpie_kir::{ValidModule, validate};

use super::*;

fn module(text: &str) -> ValidModule {
    validate(parse(text).unwrap()).unwrap()
}

#[test]
fn launches_are_checked_and_cancelled() {
    let module = module("kernel k(n: i64) { %0 = param n\n loop { } }");
    let mut memory = Memory::new();
    let config = Config { step_limit: 10_000, ..Config::default() };
    let mut go = |name: &str, arguments: &[Argument], config: &Config, cancel: bool| {
        let report = Program::new(&module, name)?.run(arguments, &mut memory, config, &|| cancel);
        report.map(|report| report.status)
    };
    let bad = |fault: Result<u32, Fault>| matches!(fault, Err(Fault::BadArguments { .. }));
    assert!(bad(go("nothing", &[], &config, false)));
    assert!(bad(go("k", &[], &config, false)));
    assert!(bad(go("k", &[Argument::Pointer(0)], &config, false)));
    assert!(bad(go("k", &[Argument::Scalar(0)], &Config { lanes: 33, ..config.clone() }, false)));
    assert!(bad(go("k", &[Argument::Scalar(0)], &Config { blocks: 0, ..config.clone() }, false)));
    assert_eq!(go("k", &[Argument::Scalar(0)], &config, true), Ok(1));
    let fault = go("k", &[Argument::Scalar(0)], &config, false).unwrap_err().to_string();
    assert!(fault.contains("stopped after 10000 steps"), "{fault}");
    // One that runs is asked again.
    let polls = Cell::new(0);
    let at_the_third = || polls.replace(polls.get() + 1) == 2;
    let endless = Config { step_limit: u64::MAX, ..Config::default() };
    let program = Program::new(&module, "k").unwrap();
    let report = program.run(&[Argument::Scalar(0)], &mut memory, &endless, &at_the_third).unwrap();
    assert_eq!((report.status, polls.get()), (1, 3));
}

#[test]
fn memory_frees_and_keeps_addresses_apart() {
    let mut memory = Memory::new();
    let (a, b) = (memory.allocate(10), memory.allocate(0));
    assert_ne!(a, b);
    assert!(memory.find(memory.address(a) + 8, 2).is_some());
    assert!(memory.find(memory.address(a) + 9, 2).is_none());
    assert!(memory.find(memory.address(b), 1).is_none());
    assert!(memory.find(u64::MAX, 8).is_none());
    assert_eq!(memory.allocated_bytes(), 10);
    memory.free(a);
    memory.free(a);
    assert!(memory.find(memory.address(a), 1).is_none());
    assert_eq!((memory.data(a), memory.allocated_bytes()), (None, 0));
}
