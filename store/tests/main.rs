//! Integration tests of `evenkeel-store`: one program, so that one is linked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod model;

mod counted_once;
mod earlier;
mod engines;
mod exactly_once;
