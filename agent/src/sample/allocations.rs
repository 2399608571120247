//! Proof that a tick without changes allocates nothing: an allocator that counts, thread by thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::tests::Machine;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread allocates, in this crate's tests only.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call is handed to the system's allocator unchanged, so its guarantees are ours. Counting touches a
// thread-local `Cell` that is initialised in place and has no destructor, so it neither allocates nor can be gone.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises about `layout` are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout, by `alloc` above.
        unsafe { System.dealloc(block, layout) }
    }
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn a_tick_without_changes_allocates_nothing() {
    let mut machine = Machine::new(20);
    let mut round = || {
        let before = allocations();
        machine.tick();
        let during = allocations() - before;
        let tick = machine.ticks.full.try_recv().unwrap();
        assert_eq!(tick.samples.len(), 20);
        machine.ticks.empty.try_send(tick).unwrap();
        during
    };
    // Each buffer has been round once, and every file has been read.
    for _ in 0..20 {
        round();
    }
    assert!(allocations() > 0, "the counter counts");
    for _ in 0..50 {
        assert_eq!(round(), 0);
    }
}
