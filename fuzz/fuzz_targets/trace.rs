//! Any bytes are a trace or an error with a line, wherever they are cut; `cargo +nightly fuzz run trace`.
#![no_main]

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::trace::{BadTrace, Reader, Series};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8], chunk: usize) -> Result<Vec<Series>, BadTrace> {
    let mut reader = Reader::new(Resource::Cpu);
    for part in bytes.chunks(chunk) {
        reader.feed(part)?;
    }
    reader.finish()
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, usize::MAX);
    assert_eq!(whole, read(bytes, 7));
    for series in whole.into_iter().flatten() {
        assert!(series.samples.windows(2).all(|pair| pair[0].time_ms < pair[1].time_ms));
    }
});
