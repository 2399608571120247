//! [`DryRunWriter`]: the whole road, no writes.

use crate::kernel_writer::KernelWriter;
use crate::write::{HostWriter, Outcome, Write};

/// Answers what a [`KernelWriter`] would do, with all its refusals, and writes nothing.
#[derive(Debug)]
pub struct DryRunWriter {
    kernel: KernelWriter,
}

impl DryRunWriter {
    /// Stands in for `kernel`.
    pub const fn new(kernel: KernelWriter) -> Self {
        Self { kernel }
    }

    pub(crate) const fn kernel(&self) -> &KernelWriter {
        &self.kernel
    }
}

impl HostWriter for DryRunWriter {
    fn apply(&mut self, write: &Write) -> Outcome {
        self.kernel.rehearse(write)
    }
}
