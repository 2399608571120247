//! Integration tests of `evenkeel-qos`: one program, so that one is linked.

mod checks;
mod cores;
mod cpu;
mod desired;
mod dynamic;
mod effective;
mod eviction;
mod explain;
mod fair;
mod memory;
mod own;
mod plan;
mod recorded;
mod replay;
mod reserve;
mod rules;
mod score;
