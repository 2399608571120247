//! Tests that need the inside: failing disks, and crashes against a model.

mod crash;
mod faults;
