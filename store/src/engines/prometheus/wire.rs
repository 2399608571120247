//! Owns the messages of Prometheus' remote write, version 1 (prometheus.io, "Prometheus Remote-Write 1.0"): protobuf
//! in a block of Snappy. Written by hand, since four messages need no generated code.

use prost::Message;

/// What one request writes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) timeseries: Vec<TimeSeries>,
}

/// Samples of one series, in the order of time.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeries {
    /// By name; `__name__` among them.
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<WireSample>,
}

/// A label.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A sample.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct WireSample {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub(super) timestamp: i64,
}

/// Headers of a request.
pub(super) const HEADERS: [(&str, &str); 3] = [
    ("Content-Type", "application/x-protobuf"),
    ("Content-Encoding", "snappy"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
];

/// The body of a request; nothing where it is larger than a Snappy block can be (4 GiB).
pub(super) fn body(request: &WriteRequest) -> Option<Vec<u8>> {
    snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_specification() {
        let label = Label { name: "__name__".into(), value: "up".into() };
        let sample = WireSample { value: 1.0, timestamp: 1000 };
        let request =
            WriteRequest { timeseries: vec![TimeSeries { labels: vec![label], samples: vec![sample] }] };
        let plain = snap::raw::Decoder::new().decompress_vec(&body(&request).unwrap()).unwrap();
        // Field 1 (series, 30 bytes): field 1 (label, 14), field 2 (sample: double 1.0, varint 1000).
        let want = b"\x0a\x1e\x0a\x0e\x0a\x08__name__\x12\x02up\x12\x0c\x09\0\0\0\0\0\0\xf0\x3f\x10\xe8\x07";
        assert_eq!(plain, want);
    }
}
