//! Runs the `.kir` files of `tests/kir`: each carries its expectations in comments, and runs on every device.
//!
//! ```text
//! ; run: sum(x=[1,2,3], n=3, out=[0]) grid=2x8 => out=[6]
//! ; run: check(n=0) => status=7
//! ; lanes: 1 4 32         lane counts of the interpreter
//! ; only: simt            needs several threads a block, or faults elsewhere
//! ; metered:              runs the kernel with the counters of its accesses, in the parameter `meter`
//! ; error: what the parser or the validator says
//! ; fault: what the interpreter says
//! ```
//! `grid=BxT` is B blocks of T threads; a CPU has one thread a block, so a kernel strides by the grid's size.

#![expect(unsafe_code, reason = "launches hand-written kernels")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::path::Path;
use std::sync::Arc;

use kelpie_backend::simt::{Argument, Config, Fault, Memory, Program};
use kelpie_device::cpu::CpuDevice;
use kelpie_device::{BlockShape, CancelToken, Device, DeviceKind, KernelArgument, Launch, Tier};
use kelpie_kir::meter::metered;
use kelpie_kir::text::parse;
use kelpie_kir::{Pointee, Scalar, Type, ValidModule, validate};

/// An argument: the elements of an array, or one scalar; as bits.
#[derive(Debug, Clone)]
struct Given {
    name: String,
    array: bool,
    text: Vec<String>,
}

#[derive(Debug)]
struct Run {
    kernel: String,
    given: Vec<Given>,
    grid: (u32, u32),
    expected: Vec<Given>,
    status: u32,
}

/// What a run leaves: the status, and the bytes of each argument that is an array.
type Outcome = (u32, Vec<Vec<u8>>);

fn directives<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(';'));
    lines.filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).map(str::trim).collect()
}

/// `a=[1, 2], n=3`
fn parse_given(mut text: &str) -> Vec<Given> {
    let mut given = Vec::new();
    while let Some((name, rest)) = text.trim_start_matches([',', ' ']).split_once('=') {
        let array = rest.starts_with('[');
        let end = rest.find(if array { ']' } else { ',' }).unwrap_or(rest.len());
        let items = rest[usize::from(array)..end].split(',').map(|item| item.trim().to_string());
        let text_of = items.filter(|item| !item.is_empty()).collect();
        given.push(Given { name: name.trim().to_string(), array, text: text_of });
        text = rest.get(end + 1..).unwrap_or("");
    }
    given
}

fn parse_run(line: &str) -> Run {
    let (call, results) = line.split_once("=>").unwrap_or((line, ""));
    let (kernel, rest) = call.split_once('(').expect("kernel(");
    let (arguments, rest) = rest.rsplit_once(')').expect(")");
    let grid = rest.trim().strip_prefix("grid=").unwrap_or("1x1");
    let (blocks, threads) = grid.split_once('x').expect("grid=BxT");
    let (status, expected) = parse_given(results).into_iter().partition(|given| given.name == "status");
    let status: Vec<Given> = status;
    Run {
        kernel: kernel.trim().to_string(),
        given: parse_given(arguments),
        grid: (blocks.parse().expect("blocks"), threads.trim().parse().expect("threads")),
        expected,
        status: status.first().map_or(0, |given| given.text[0].parse().expect("status")),
    }
}

/// The bits of a scalar: decimal, `0x…` (bits), or a float.
fn bits(scalar: Scalar, text: &str) -> i128 {
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return u128::from_str_radix(hexadecimal, 16).expect(text) as i128;
    }
    match scalar {
        Scalar::F32 => i128::from(text.parse::<f32>().expect(text).to_bits()),
        Scalar::F64 => i128::from(text.parse::<f64>().expect(text).to_bits()),
        Scalar::Bool => i128::from(text == "true" || text == "1"),
        _ => text.parse().expect(text),
    }
}

/// The scalar of an array argument; structs are given as lists of `i64`.
fn element(ty: Type) -> Scalar {
    match ty {
        Type::Scalar(scalar) | Type::Ptr(_, Pointee::Scalar(scalar)) => scalar,
        Type::Ptr(_, Pointee::Struct(_)) => Scalar::I64,
        Type::Vector(..) | Type::Mask(_) => unreachable!("no parameter is a vector"),
    }
}

fn bytes_of(ty: Type, given: &Given) -> Vec<u8> {
    let scalar = element(ty);
    let item = |text: &String| bits(scalar, text).to_le_bytes()[..scalar.bytes() as usize].to_vec();
    given.text.iter().flat_map(item).collect()
}

/// Pairs the arguments with the kernel's parameters, in the kernel's order.
fn arguments(module: &ValidModule, test: &Run) -> Vec<(Type, Given)> {
    let (_, kernel) = module.kernels.iter().find(|(_, f)| f.name == test.kernel).expect("the kernel");
    let find = |name: &str| test.given.iter().find(|given| given.name == name).expect(name).clone();
    kernel.params.iter().map(|param| (param.ty, find(&param.name))).collect()
}

fn on_simt(module: &ValidModule, test: &Run, lanes: u32, seed: u64) -> Result<Outcome, Fault> {
    let mut memory = Memory::new();
    let (mut ids, mut launch) = (Vec::new(), Vec::new());
    for (ty, given) in arguments(module, test) {
        if given.array {
            let content = bytes_of(ty, &given);
            let id = memory.allocate(content.len());
            memory.data_mut(id).unwrap().copy_from_slice(&content);
            launch.push(Argument::Pointer(memory.address(id)));
            ids.push(id);
        } else {
            launch.push(Argument::Scalar(bits(element(ty), &given.text[0])));
        }
    }
    let (blocks, block_threads) = test.grid;
    let config = Config { lanes, block_threads, blocks, seed, step_limit: 10_000_000, detect_races: true };
    let program = Program::new(module, &test.kernel)?;
    let report = program.run(&launch, &mut memory, &config, &|| false)?;
    Ok((report.status, ids.iter().map(|id| memory.data(*id).unwrap().to_vec()).collect()))
}

fn on_device(device: &Arc<dyn Device>, tier: Tier, module: &ValidModule, test: &Run) -> Outcome {
    let threads = if device.kind() == DeviceKind::Cpu { 1 } else { test.grid.1 };
    let shape = BlockShape { threads, resident: None };
    let stream = Arc::clone(device).begin_query().unwrap();
    stream.set_tier(tier);
    let kernel = stream.compile_for(module, &test.kernel, shape).unwrap_or_else(|error| panic!("{error}"));
    let (mut buffers, mut launch) = (Vec::new(), Vec::new());
    for (ty, given) in arguments(module, test) {
        if given.array {
            let content = bytes_of(ty, &given);
            let buffer = device.allocate(content.len()).unwrap();
            device.upload(&buffer, 0, &content).unwrap();
            launch.push(KernelArgument::Buffer(buffer.clone(), 0));
            buffers.push((buffer, content.len()));
        } else {
            let scalar = element(ty);
            launch.push(KernelArgument::Scalar(scalar, bits(scalar, &given.text[0])));
        }
    }
    let cancel = CancelToken::default();
    // SAFETY: what a file expects of other devices held on the interpreter before, which checks every access.
    let request = unsafe { Launch::new(kernel.as_ref(), test.grid.0, &launch, &cancel) };
    let report = device.launch(request).unwrap_or_else(|error| panic!("{error}"));
    let read = |(buffer, bytes): &(_, usize)| {
        let mut content = vec![0; *bytes];
        device.download(buffer, 0, &mut content).unwrap();
        content
    };
    (report.status, buffers.iter().map(read).collect())
}

fn check(place: &str, module: &ValidModule, test: &Run, (status, arrays): Outcome) {
    assert_eq!(status, test.status, "{place}: status");
    let given = arguments(module, test).into_iter().filter(|(_, given)| given.array);
    for ((ty, given), found) in given.zip(arrays) {
        let Some(expected) = test.expected.iter().find(|expected| expected.name == given.name) else {
            continue;
        };
        let (scalar, bytes) = (element(ty), element(ty).bytes() as usize);
        let list = |content: &[u8]| -> Vec<String> {
            let hexadecimal = |item: &[u8]| item.iter().rev().map(|byte| format!("{byte:02x}")).collect();
            content.chunks(bytes).map(hexadecimal).collect()
        };
        let wanted = bytes_of(ty, expected);
        assert_eq!(list(&found), list(&wanted), "{place}: {} ({})", given.name, scalar.name());
    }
}

fn run_file(path: &Path, devices: &[Arc<dyn Device>]) -> usize {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let is_metered = !directives(&text, "metered").is_empty();
    let module = parse(&text)
        .map(|module| if is_metered { metered(&module) } else { module })
        .map_err(|error| error.to_string())
        .and_then(|module| validate(module).map_err(|error| error.to_string()));
    if let Some(expected) = directives(&text, "error").first() {
        let error = module.expect_err(&name);
        assert!(error.contains(expected), "{name}: {error}");
        return 1;
    }
    let module = module.unwrap_or_else(|error| panic!("{name}: {error}"));
    let fault = directives(&text, "fault").first().copied();
    let only_simt = fault.is_some() || directives(&text, "only").contains(&"simt");
    let lanes = directives(&text, "lanes").first().copied().unwrap_or("1 4 32");
    let lanes: Vec<u32> = lanes.split(' ').map(|lanes| lanes.parse().unwrap()).collect();
    let runs = directives(&text, "run");
    assert!(!runs.is_empty(), "{name} runs nothing");
    for line in &runs {
        let test = parse_run(line);
        for (lanes, seed) in lanes.iter().flat_map(|lanes| (0..4).map(move |seed| (*lanes, seed))) {
            let place = format!("{name}, {line}, {lanes} lanes, seed {seed}");
            match (on_simt(&module, &test, lanes, seed), fault) {
                (Err(found), Some(fault)) => {
                    assert!(found.to_string().contains(fault), "{place}: {found}")
                }
                (Err(found), None) => panic!("{place}: {found}"),
                (Ok(_), Some(fault)) => panic!("{place}: ends without a fault: {fault}"),
                (Ok(outcome), None) => check(&place, &module, &test, outcome),
            }
        }
        for device in devices.iter().filter(|_| !only_simt) {
            // Of a device with one compiler both are the same.
            for tier in [Tier::Quick, Tier::Best] {
                let place = format!("{name}, {line}, {}, {tier:?}", device.name());
                check(&place, &module, &test, on_device(device, tier, &module, &test));
            }
        }
    }
    runs.len()
}

#[test]
fn every_file_does_what_it_says_on_every_device() {
    let mut devices: Vec<Arc<dyn Device>> = vec![CpuDevice::new(Some(2)).unwrap()];
    match kelpie_device::cuda::CudaDevice::open(0) {
        Ok(device) => devices.push(device),
        Err(error) => kelpie_device::testing::skip("cuda", &error),
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kir");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "kir"));
    files.sort();
    let runs: usize = files.iter().map(|path| run_file(path, &devices)).sum();
    eprintln!("{} files, {runs} runs", files.len());
    assert!(runs >= 20, "only {runs} runs");
}
