//! Any bytes get a cluster or an error, and a cluster can be asked; `cargo +nightly fuzz run snapshot`.
#![no_main]

use evenkeel_capacity::answer::{Ask, Shape, ask};
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::{Container, Pod};
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::state::State;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut loader = Loader::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    while json.end().is_err() {
        if loader.document(&mut json).is_err() {
            return;
        }
    }
    let (mut cluster, _) = loader.finish();
    let mut pod = Pod::default();
    pod.spec.containers.push(Container::default());
    let question =
        Ask { shapes: vec![Shape { pod, wanted: 1 }], max: Some(3), help: true, ..Ask::default() };
    let mut state = State::new(&cluster);
    if let Ok(answer) = ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true) {
        assert!(answer.count <= 3);
    }
});
