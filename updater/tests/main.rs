//! Integration tests of `evenkeel-updater`: one program, so that one is linked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;

mod choice;
mod offers;
mod simulation;
