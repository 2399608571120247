//! Any text gets pods or an error, and pods get requests and rules; `cargo +nightly fuzz run pods`.
#![no_main]

use evenkeel_model::pod::read_pods;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(pods) = read_pods(text, "fuzz") {
        for pod in pods {
            let _ = (pod.effective_requests(), pod.effective_limits(), pod.check());
        }
    }
});
