//! Integration tests of `evenkeel-capacity`: one program, so that one is linked.

mod admission;
mod agree;
mod answers;
mod broken;
mod cancelled;
mod claims;
mod common;
mod edges;
mod moves;
mod openb;
mod own_plugins;
mod requests;
mod scenarios;
mod scheduler;
mod volumes;
