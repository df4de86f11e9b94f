//! The driver's assembler: from PTX to code for one GPU.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUjit_option as JitOption, CUjitInputType, CUlinkState, CUresult};

/// Bytes that the driver may write about an error.
const LOG_BYTES: usize = 8 << 10;

/// Assembles a text (called `name` in messages) for the GPU whose context is current. The error is the driver's words.
pub fn assemble(text: &str, name: &str) -> Result<Vec<u8>, String> {
    let (text, name) = match (CString::new(text), CString::new(name)) {
        (Ok(text), Ok(name)) => (text, name),
        _ => return Err("the text has a NUL character".into()),
    };
    let mut log = vec![0u8; LOG_BYTES];
    // Values that are numbers are passed in the place of pointers.
    let mut options = [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
    let mut linker = Linker(ptr::null_mut());
    // SAFETY: there are as many options as values, and both, and the log, outlive the linker, which is dropped at the end.
    let created =
        unsafe { sys::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut linker.0) };
    let check = |result: CUresult, log: &[u8]| match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(words(error, log)),
    };
    check(created, &log)?;
    // SAFETY: the linker is alive; the text ends with NUL, which is counted, and the driver copies it.
    let added = unsafe {
        sys::cuLinkAddData_v2(
            linker.0,
            CUjitInputType::CU_JIT_INPUT_PTX,
            text.as_ptr().cast_mut().cast(),
            text.as_bytes_with_nul().len(),
            name.as_ptr().cast::<c_char>(),
            0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    check(added, &log)?;
    let (mut code, mut bytes) = (ptr::null_mut::<c_void>(), 0usize);
    // SAFETY: the linker is alive and both places are valid.
    let completed = unsafe { sys::cuLinkComplete(linker.0, &mut code, &mut bytes) };
    check(completed, &log)?;
    if code.is_null() {
        return Err("the assembler gave no code".into());
    }
    // SAFETY: the driver owns `bytes` bytes there as long as the linker lives; they are copied here.
    Ok(unsafe { std::slice::from_raw_parts(code.cast::<u8>(), bytes) }.to_vec())
}

/// The driver's own words, behind the name of the error.
fn words(error: CUresult, log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let name = super::driver::words(cudarc::driver::DriverError(error));
    match String::from_utf8_lossy(&log[..end]).trim() {
        "" => name,
        log => format!("{name}\n{log}"),
    }
}

/// Destroyed when dropped.
struct Linker(CUlinkState);

impl Drop for Linker {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `cuLinkCreate`, destroyed once. An error could only mean that the context is gone.
            let _ = unsafe { sys::cuLinkDestroy(self.0) };
        }
    }
}
