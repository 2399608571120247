//! Generates the CRI client of the test fixtures from `proto/cri.proto`, without a protoc binary.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/cri.proto");
    let descriptors = protox::compile(["cri.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
