//! Integration tests of `evenkeel-model`: one program, so that one is linked.

mod names;
mod pods;
mod quantity;
mod quantity_properties;
mod requirements;
mod selectors;
mod usage;
