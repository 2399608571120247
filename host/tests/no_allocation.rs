//! Sampling allocates nothing once the files are open. In a process of its own, because it counts every allocation.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use evenkeel_host::fake::FakeTree;
use evenkeel_host::hierarchy::CgroupMode;
use evenkeel_host::sampler::{ContainerReader, Descriptors, Plan, SampleContext};
use evenkeel_model::sample::Field;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; the counter is a plain cell of the thread
// that needs no allocation itself.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System.alloc` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_tick_allocates_nothing() {
    for mode in [CgroupMode::V1, CgroupMode::V2, CgroupMode::Hybrid] {
        let tree = FakeTree::new(mode).unwrap();
        let opened = tree.open().unwrap();
        let mut readers = Vec::new();
        let mut context = SampleContext::new(opened, Descriptors::within(10_000), Plan::refresh_every(1));
        for i in 0..20 {
            let path = format!("/pods/c{i}");
            tree.add_cgroup(&path).unwrap();
            readers.push(ContainerReader::open(&context, &path).unwrap().reader);
        }
        let before = ALLOCATIONS.with(Cell::get);
        let mut known = 0;
        for tick in 0..10 {
            for reader in &mut readers {
                let (sample, _) = reader.sample(&mut context, Duration::from_secs(tick), tick).unwrap();
                known += usize::from(sample.get(Field::CpuUsageUsec).is_some());
            }
        }
        assert_eq!((known, ALLOCATIONS.with(Cell::get) - before), (200, 0), "{mode:?}");
    }
}
