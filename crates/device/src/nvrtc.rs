//! NVRTC, the CUDA compiler as a library, loaded at run time. It needs no GPU.
//!
//! Where it is looked for, in order: the file or folder that the environment variable `KELPIE_NVRTC` names; the loader's
//! own path (`libnvrtc.so.13` and older); `CUDA_HOME` and `/usr/local/cuda`; the PyPI packages `nvidia-cuda-nvrtc` and
//! `nvidia-cuda-nvrtc-cu12` of the Python that `VIRTUAL_ENV` or the home directory has.

#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;

/// The environment variable that names the library or its folder.
pub const NVRTC_VARIABLE: &str = "KELPIE_NVRTC";

/// What every kernel is compiled with, beside the architecture. `--fmad=false`: a contracted multiply-add would not
/// equal the CPU's result.
pub const OPTIONS: &[&str] = &[
    "-std=c++17", "--device-int128", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true",
    "-default-device", "--disable-warnings",
];

/// Leaves out of what every source begins with the parts that no kernel uses (textures, CUDA's runtime functions): a tenth of
/// the time of most kernels. Known to versions from [`MINIMAL_SINCE`] on.
const MINIMAL: &str = "--minimal";
const MINIMAL_SINCE: (i32, i32) = (13, 0);

/// Why there is no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvrtcError {
    /// The library was not found; the text says where it was looked for.
    #[error("{0}")]
    Missing(String),
    /// The compiler rejects the source.
    #[error("{0}")]
    Rejected(String),
}

/// `nvrtcProgram`.
type Program = *mut c_void;

/// The loaded library.
pub struct Nvrtc {
    version: (i32, i32),
    path: PathBuf,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    cubin_size: SizeFunction,
    cubin: BytesFunction,
    log_size: SizeFunction,
    log: BytesFunction,
    /// Asked now and then while a program is compiled; absent in older versions.
    set_flow_callback: Option<unsafe extern "C" fn(Program, FlowCallback, *mut c_void) -> c_int>,
    /// Keeps the functions above valid.
    _library: Library,
}

type SizeFunction = unsafe extern "C" fn(Program, *mut usize) -> c_int;
/// Is given what was registered with it, and something reserved; 1 gives the compilation up.
type FlowCallback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type BytesFunction = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc").field("version", &self.version).field("path", &self.path).finish()
    }
}

/// The library, loaded once a process.
pub fn get() -> Result<&'static Nvrtc, NvrtcError> {
    static LOADED: OnceLock<Result<Nvrtc, NvrtcError>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

impl Nvrtc {
    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// The file that was loaded, or its name where the loader found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles `source` (called `name` in messages) for an architecture such as `sm_90`. Any number of threads may
    /// compile at once.
    pub fn compile(&self, source: &str, architecture: &str, name: &str) -> Result<Vec<u8>, NvrtcError> {
        self.compile_unless(source, architecture, name, &AtomicBool::new(false))
    }

    /// The same, given up soon after `ends` is set, with an error; by older versions of the library when they are done.
    pub fn compile_unless(
        &self,
        source: &str,
        architecture: &str,
        name: &str,
        ends: &AtomicBool,
    ) -> Result<Vec<u8>, NvrtcError> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| NvrtcError::Rejected("the source has a NUL character".into()))
        };
        let (source, name) = (text(source)?, text(name)?);
        let mut options = vec![text(&format!("--gpu-architecture={architecture}"))?];
        let minimal = (self.version >= MINIMAL_SINCE).then_some(&MINIMAL);
        for option in OPTIONS.iter().chain(minimal) {
            options.push(text(option)?);
        }
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        // SAFETY: both strings end with NUL and outlive the program, which `Guard` destroys before they are dropped;
        // no headers are given.
        let created = unsafe {
            (self.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
        };
        if created != 0 {
            return Err(NvrtcError::Rejected(format!("nvrtcCreateProgram: {}", error_name(created))));
        }
        let guard = Guard { nvrtc: self, program };
        if let Some(set) = self.set_flow_callback {
            let flag = std::ptr::from_ref(ends).cast_mut().cast();
            // SAFETY: the program is alive, and the flag outlives the compilation, during which alone it is read. Without the
            // callback the compilation only takes longer to give up.
            let _ = unsafe { set(guard.program, gives_up, flag) };
        }
        // SAFETY: the program is alive, and `pointers` are as many NUL-terminated strings as are announced.
        let compiled = unsafe { (self.compile)(guard.program, pointers.len() as c_int, pointers.as_ptr()) };
        if compiled != 0 {
            let log = guard.bytes(self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string();
            return Err(NvrtcError::Rejected(format!("{}\n{log}", error_name(compiled))));
        }
        guard
            .bytes(self.cubin_size, self.cubin)
            .map_err(|code| NvrtcError::Rejected(format!("nvrtcGetCUBIN: {}", error_name(code))))
    }
}

/// Whether a compilation is given up: the flag that it was registered with is set.
unsafe extern "C" fn gives_up(flag: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `compile_unless` registers a flag that outlives the compilation.
    c_int::from(unsafe { &*flag.cast::<AtomicBool>() }.load(Ordering::Relaxed))
}

/// Destroys the program.
struct Guard<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Guard<'_> {
    fn bytes(&self, size: SizeFunction, read: BytesFunction) -> Result<Vec<u8>, c_int> {
        let mut length = 0usize;
        // SAFETY: the program is alive and `length` is a valid place for a size.
        match unsafe { size(self.program, &mut length) } {
            0 => {}
            code => return Err(code),
        }
        let mut bytes = vec![0u8; length];
        // SAFETY: the library writes exactly the `length` bytes that it has just announced.
        match unsafe { read(self.program, bytes.as_mut_ptr().cast()) } {
            0 => Ok(bytes),
            code => Err(code),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created and is destroyed once. An error could only mean that it is gone.
        let _ = unsafe { (self.nvrtc.destroy)(&mut self.program) };
    }
}

fn load() -> Result<Nvrtc, NvrtcError> {
    let mut tried = Vec::new();
    for candidate in candidates() {
        match open(&candidate) {
            Ok(nvrtc) => return Ok(nvrtc),
            Err(error) => tried.push(format!("{} ({error})", candidate.display())),
        }
    }
    Err(NvrtcError::Missing(format!(
        "NVRTC, the CUDA compiler library, was not found (set {NVRTC_VARIABLE} to its file or folder, or install the \
         Python package nvidia-cuda-nvrtc); looked for {}",
        if tried.is_empty() { "nothing".to_string() } else { tried.join(", ") }
    )))
}

fn open(path: &Path) -> Result<Nvrtc, String> {
    // The error's source is the loader's own message.
    let brief = |error: libloading::Error| match std::error::Error::source(&error) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    // SAFETY: loading NVRTC runs its initialisers, which have no preconditions.
    let library = unsafe { Library::new(path) }.map_err(brief)?;
    // SAFETY: the signatures are those of nvrtc.h, unchanged since CUDA 11.1; `_library` keeps the code loaded.
    unsafe {
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
            *library.get(b"nvrtcVersion\0").map_err(brief)?;
        let (mut major, mut minor) = (0, 0);
        if version(&mut major, &mut minor) != 0 {
            return Err("nvrtcVersion failed".into());
        }
        Ok(Nvrtc {
            version: (major, minor),
            path: path.to_path_buf(),
            create: *library.get(b"nvrtcCreateProgram\0").map_err(brief)?,
            destroy: *library.get(b"nvrtcDestroyProgram\0").map_err(brief)?,
            compile: *library.get(b"nvrtcCompileProgram\0").map_err(brief)?,
            cubin_size: *library.get(b"nvrtcGetCUBINSize\0").map_err(brief)?,
            cubin: *library.get(b"nvrtcGetCUBIN\0").map_err(brief)?,
            log_size: *library.get(b"nvrtcGetProgramLogSize\0").map_err(brief)?,
            log: *library.get(b"nvrtcGetProgramLog\0").map_err(brief)?,
            set_flow_callback: library.get(b"nvrtcSetFlowCallback\0").ok().map(|found| *found),
            _library: library,
        })
    }
}

/// Names that the loader resolves by itself, newest first.
fn library_names() -> Vec<String> {
    if cfg!(windows) {
        ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"].map(String::from).to_vec()
    } else {
        ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(String::from).to_vec()
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(given) = std::env::var_os(NVRTC_VARIABLE).filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        if given.is_dir() {
            let folders =
                [given.clone(), given.join("lib"), given.join("nvidia/cu13/lib"), given.join("lib64")];
            let before = found.len();
            folders.iter().for_each(|folder| existing(folder, &mut found));
            if found.len() == before {
                found.push(given.join(&library_names()[0]));
            }
        } else {
            found.push(given);
        }
    }
    found.extend(library_names().into_iter().map(PathBuf::from));
    for root in
        std::env::var_os("CUDA_HOME").map(PathBuf::from).into_iter().chain([PathBuf::from("/usr/local/cuda")])
    {
        existing(&root.join("lib64"), &mut found);
    }
    for packages in site_packages() {
        existing(&packages.join("nvidia/cu13/lib"), &mut found);
        existing(&packages.join("nvidia/cuda_nvrtc/lib"), &mut found);
    }
    found
}

/// Adds the libraries that a folder has.
fn existing(folder: &Path, found: &mut Vec<PathBuf>) {
    found.extend(library_names().iter().map(|name| folder.join(name)).filter(|path| path.is_file()));
}

/// `site-packages` of the active virtual environment, the user and the system.
fn site_packages() -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> = Vec::new();
    parents.extend(std::env::var_os("VIRTUAL_ENV").map(|root| PathBuf::from(root).join("lib")));
    parents.extend(dirs::home_dir().map(|home| home.join(".local/lib")));
    parents.extend(["/usr/local/lib", "/usr/lib"].map(PathBuf::from));
    let mut folders = Vec::new();
    for parent in parents {
        let Ok(entries) = std::fs::read_dir(&parent) else { continue };
        let mut versions: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
            .collect();
        versions.sort();
        for version in versions.into_iter().rev() {
            folders.extend(["site-packages", "dist-packages"].map(|name| version.join(name)));
        }
    }
    folders
}

/// `nvrtcResult` by name (nvrtc.h).
fn error_name(code: c_int) -> String {
    let name = match code {
        1 => "out of memory",
        2 => "program creation failure",
        3 => "invalid input",
        4 => "invalid program",
        5 => "invalid option (the architecture may be unknown to this version)",
        6 => "compilation error",
        7 => "built-in operation failure (libnvrtc-builtins may be missing)",
        11 => "internal error",
        _ => return format!("NVRTC error {code}"),
    };
    name.to_string()
}
