//! An allocator that counts what each thread allocates, and otherwise is the system's.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Initialised at compile time and without a destructor, so that using it allocates nothing.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The counting allocator.
pub(crate) struct Counting;

/// Allocations and reallocations of the calling thread so far.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: every method hands its arguments to the system's allocator and its result back, unchanged; the counter
// beside it is thread-local, neither allocates nor unwinds, and so keeps every promise the system's allocator keeps.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
