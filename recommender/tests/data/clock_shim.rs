//! Stands before the C library: the wall clock is ahead by the seconds in `TEST_CLOCK_AHEAD`, other clocks are as they are.

use std::ffi::{c_int, c_long};
use std::sync::OnceLock;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;
const CLOCK_REALTIME: c_int = 0;

static AHEAD: OnceLock<i64> = OnceLock::new();

/// # Safety
/// As clock_gettime(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, at: *mut Timespec) -> c_int {
    let ahead = *AHEAD.get_or_init(|| {
        std::env::var("TEST_CLOCK_AHEAD").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    });
    // SAFETY: the caller's pointer is handed on as it came.
    let done = unsafe { syscall(CLOCK_GETTIME, clock, at) } as c_int;
    if done == 0 && clock == CLOCK_REALTIME {
        // SAFETY: the kernel has just written there.
        unsafe { (*at).seconds += ahead };
    }
    done
}
