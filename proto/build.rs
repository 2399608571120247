//! Compiles `proto/evenkeel/v1/*.proto` with protox, so that no `protoc` is needed, and keeps the descriptors
//! for reflection and for the compatibility test.

use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 8] = [
    "evenkeel/v1/types.proto",
    "evenkeel/v1/agent.proto",
    "evenkeel/v1/ingest.proto",
    "evenkeel/v1/recommender.proto",
    "evenkeel/v1/policy.proto",
    "evenkeel/v1/capacity.proto",
    "evenkeel/v1/enroll.proto",
    "evenkeel/v1/audit.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("evenkeel.v1.fds"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".evenkeel.v1.Frame.samples")
        .codec_path("crate::bounded::BoundedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
