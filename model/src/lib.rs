//! The nouns of Evenkeel: what the programs and the pure sciences talk about.
//!
//! Owned here: quantities, resource names and types, requirements, selectors, pods, nodes, QoS classes, workloads as found
//! on a node, keys, samples, usage records, decisions, the knobs of the kernel with the values they take; conversions between numbers. Not owned: any rule about them (`qos`, `rightsizing`,
//! `capacity`), any wire form (`proto`), any file, clock or log. This crate depends on nothing of ours.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod causes;
pub mod cgroup;
pub mod decision;
pub mod kernel_text;
pub mod key;
pub mod knob;
pub mod name;
pub mod narrow;
pub mod node;
pub mod null;
pub mod panic;
pub mod pod;
pub mod qos_class;
pub mod quantity;
pub mod reload;
pub mod requirements;
pub mod resource_type;
pub mod rollup;
pub mod sample;
pub mod selector;
pub mod shown;
pub mod traffic;
pub mod units;
pub mod usage;
pub mod workload;
pub mod yaml;
