//! Traces of usage.

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::trace::{BadTrace, TraceReader, TraceSeries};

/// Bytes are a trace or an error with a line, wherever they are cut.
pub(crate) fn read(bytes: &[u8]) {
    let whole = cut(bytes, usize::MAX);
    assert_eq!(whole, cut(bytes, 7));
    for series in whole.into_iter().flatten() {
        assert!(series.samples.windows(2).all(|pair| pair[0].time_ms < pair[1].time_ms));
    }
}

fn cut(bytes: &[u8], chunk: usize) -> Result<Vec<TraceSeries>, BadTrace> {
    let mut reader = TraceReader::new(Resource::Cpu);
    for part in bytes.chunks(chunk) {
        reader.feed(part)?;
    }
    reader.finish()
}

pub(crate) fn some() -> Vec<Vec<u8>> {
    crate::owned(&[
        "series,t,value\na,1700000000,0.25\nb,1700000000,1\na,1700000300,0.5\na,1700000600.5,1e-3\nb,1700000300,0\n",
        "series,t,value\r\n\"x\",0,0\r\nx,60,4\r\n",
    ])
}
