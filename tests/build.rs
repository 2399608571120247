//! Generates the CRI client of the test fixtures from `proto/cri.proto`, and the server of the scripted runtime from what
//! the agent reads of the CRI, without a protoc binary.

use std::error::Error;
use std::path::PathBuf;

const AGENTS: &str = "../agent/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/cri.proto");
    println!("cargo::rerun-if-changed={AGENTS}/cri.proto");
    let descriptors = protox::compile(["cri.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    // Both have the package of the CRI, so the second goes to a directory of its own.
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?).join("reading");
    std::fs::create_dir_all(&directory)?;
    let descriptors = protox::compile(["cri.proto"], [AGENTS])?;
    tonic_prost_build::configure().build_client(false).out_dir(directory).compile_fds(descriptors)?;
    Ok(())
}
