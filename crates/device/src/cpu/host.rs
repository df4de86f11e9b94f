//! What this machine's processor is, for people.

/// Name and value of each property.
pub(super) fn properties(workers: u32, limit_bytes: u64) -> Vec<(String, String)> {
    let gigabytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
    let memory = crate::memory::physical_bytes().map_or("unknown".into(), gigabytes);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [
        ("processor", model_name()),
        ("cores", cores.to_string()),
        ("workers", workers.to_string()),
        ("memory", memory),
        ("memory limit", gigabytes(limit_bytes)),
        ("instruction sets", instruction_sets().join(" ")),
        ("huge pages", huge_pages()),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into()
}

/// The processor's model, and how many of its cores are this machine's.
pub(super) fn identity() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("cpu: {}, {cores} cores", model_name())
}

fn model_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.trim().strip_prefix(':'));
    model.map_or(std::env::consts::ARCH, str::trim).to_string()
}

/// Transparent huge pages: the mode in force.
fn huge_pages() -> String {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
    mode.unwrap_or("not available").to_string()
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    let known = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("popcnt", is_x86_feature_detected!("popcnt")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vbmi2", is_x86_feature_detected!("avx512vbmi2")),
    ];
    known.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "aarch64")]
fn instruction_sets() -> Vec<&'static str> {
    let known = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("lse", std::arch::is_aarch64_feature_detected!("lse")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
    ];
    known.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instruction_sets() -> Vec<&'static str> {
    Vec::new()
}
