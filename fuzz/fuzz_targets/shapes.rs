//! Any JSON gets shapes or an error, and shapes can be asked about; `cargo +nightly fuzz run shapes`.
#![no_main]

use evenkeel_capacity::answer::{Ask, ask};
use evenkeel_capacity::cluster::Builder;
use evenkeel_capacity::load::shapes;
use evenkeel_capacity::object::{Node, Object};
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::state::State;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = serde_json::from_slice(bytes) else { return };
    let Ok(mut shapes) = shapes(&document) else { return };
    // A set of very many pods is no fault, but takes its time.
    shapes.retain(|shape| shape.wanted <= 8);
    let mut builder = Builder::new();
    let _ = builder.add(&Object::Node(Box::new(Node::default())));
    let mut cluster = builder.finish().0;
    let mut state = State::new(&cluster);
    let question = Ask { shapes, max: Some(3), help: true, ..Ask::default() };
    let _ = ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true);
});
