//! Any text is refused or reads back from its canonical form; `cargo +nightly fuzz run quantity`.
#![no_main]

use evenkeel_model::quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(quantity) = Quantity::parse(text) {
        let canonical = quantity.canonical();
        assert_eq!(Quantity::parse(&canonical).as_ref(), Ok(&quantity), "{canonical}");
        assert_eq!(Quantity::parse(&quantity.exact()).as_ref(), Ok(&quantity));
        let _ = (quantity.value(), quantity.milli(), quantity.checked_add(quantity));
    }
});
