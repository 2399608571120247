//! What any bytes must not break.
//!
//! Owned here: one function for each reader of foreign bytes, with texts to begin from, and chance that is seeded.
//! libFuzzer calls the functions, guided by coverage (`fuzz_targets/`, `scripts/fuzz`), and so do a test and a program without it
//! (`tests/rounds.rs`, `cargo run --release -p evenkeel-fuzz -- TARGET ROUNDS SEED`).

mod border;
mod bus;
mod capacity;
mod frame;
mod kernel;
mod model;
mod mutate;
mod policy;
mod trace;
mod updater;
mod webhook;

pub use mutate::Mutator;

/// A reader of foreign bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name.
    pub name: &'static str,
    read: fn(&[u8]),
    samples: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Reads these bytes, and panics where that breaks what must hold.
    pub fn run(&self, bytes: &[u8]) {
        (self.read)(bytes);
    }

    /// Bytes that are read well, to begin from.
    pub fn samples(&self) -> Vec<Vec<u8>> {
        (self.samples)()
    }
}

/// Every reader.
pub const TARGETS: [Target; 15] = [
    Target { name: "quantity", read: model::quantity, samples: model::quantities },
    Target { name: "pods", read: model::pods, samples: model::manifests },
    Target { name: "pod_list", read: model::pod_list, samples: model::pod_lists },
    Target { name: "kernel_files", read: kernel::files, samples: kernel::some_files },
    Target { name: "kernel_log", read: kernel::log, samples: kernel::some_log },
    Target { name: "snapshot", read: capacity::snapshot, samples: capacity::clusters },
    Target { name: "shapes", read: capacity::shapes, samples: capacity::workloads },
    Target { name: "options", read: capacity::options, samples: capacity::some_options },
    Target { name: "trace", read: trace::read, samples: trace::some },
    Target { name: "bus", read: bus::answer, samples: bus::some },
    Target { name: "border", read: border::read, samples: border::some },
    Target { name: "frames", read: frame::read, samples: frame::some },
    Target { name: "policies", read: policy::read, samples: policy::some },
    Target { name: "notes", read: updater::note, samples: updater::notes },
    Target { name: "reviews", read: webhook::review, samples: webhook::reviews },
];

/// The reader of this name; the first one where there is none, which only happens to a target that is spelt wrongly.
pub fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|target| target.name == name).unwrap_or(TARGETS[0])
}

fn owned(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
