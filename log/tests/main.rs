//! Integration tests of `evenkeel-log`: one program, so that one is linked.

mod basic;
mod damage;
mod disk_full;
mod kill;
mod snapshot;
