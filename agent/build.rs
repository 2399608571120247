//! Compiles the part of the Container Runtime Interface the agent reads, with protox.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["cri.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(true).compile_fds(descriptors)?;
    Ok(())
}
