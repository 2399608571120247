//! Exclusive cores: Guaranteed containers that request whole cores get cores of their own.

mod list;

pub use list::{CpuList, NotACpuList};
