//! The CRI client: blocking calls over one connection. Owns its own async runtime, so it must not be called from async
//! code.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use super::api::runtime_service_client::RuntimeServiceClient;
use super::api::{
    Container, ContainerConfig, ContainerStatusRequest, ContainerStatusResponse, CreateContainerRequest,
    LinuxContainerResources, ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxConfig,
    RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StopContainerRequest, StopPodSandboxRequest, UpdateContainerResourcesRequest, VersionRequest,
    VersionResponse,
};

/// A client of one CRI socket.
#[derive(Debug)]
pub struct Cri {
    runtime: tokio::runtime::Runtime,
    client: RuntimeServiceClient<Channel>,
}

/// Makes one call; the error names it.
macro_rules! call {
    ($self:ident . $method:ident ( $request:expr )) => {
        $self
            .runtime
            .block_on($self.client.clone().$method($request))
            .map(tonic::Response::into_inner)
            .context(concat!("the runtime refused ", stringify!($method)))
    };
}

impl Cri {
    /// A client of the socket at `path`, which need not be there yet.
    ///
    /// # Errors
    ///
    /// Fails when the path is not a valid address.
    pub fn new(path: &Path) -> Result<Cri> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot make an async runtime")?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", path.display()))
            .with_context(|| format!("{} is not a socket's path", path.display()))?;
        let channel = runtime.block_on(async { endpoint.connect_lazy() });
        Ok(Cri { runtime, client: RuntimeServiceClient::new(channel) })
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    ///
    /// Fails when nothing answers.
    pub fn version(&self) -> Result<VersionResponse> {
        call!(self.version(VersionRequest { version: String::new() }))
    }

    /// Starts a sandbox and returns its id.
    ///
    /// # Errors
    ///
    /// Fails when the runtime refuses.
    pub fn run_pod_sandbox(&self, config: &PodSandboxConfig) -> Result<String> {
        let request = RunPodSandboxRequest { config: Some(config.clone()) };
        call!(self.run_pod_sandbox(request)).map(|response| response.pod_sandbox_id)
    }

    /// Creates and starts a container and returns its id.
    ///
    /// # Errors
    ///
    /// Fails when the runtime refuses.
    pub fn run_container(
        &self,
        sandbox: &str,
        sandbox_config: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(config),
            sandbox_config: Some(sandbox_config.clone()),
        };
        let container_id = call!(self.create_container(request))?.container_id;
        call!(self.start_container(StartContainerRequest { container_id: container_id.clone() }))?;
        Ok(container_id)
    }

    /// Changes the resources of a running container.
    ///
    /// # Errors
    ///
    /// Fails when the runtime refuses.
    pub fn update(&self, container: &str, resources: LinuxContainerResources) -> Result<()> {
        let container_id = container.to_string();
        let request = UpdateContainerResourcesRequest { container_id, linux: Some(resources) };
        call!(self.update_container_resources(request)).map(|_| ())
    }

    /// Kills and removes a container.
    ///
    /// # Errors
    ///
    /// Fails when the runtime refuses.
    pub fn remove_container(&self, container: &str) -> Result<()> {
        let container_id = container.to_string();
        call!(self.stop_container(StopContainerRequest { container_id: container_id.clone(), timeout: 0 }))?;
        call!(self.remove_container(RemoveContainerRequest { container_id })).map(|_| ())
    }

    /// Stops and removes a sandbox with its containers.
    ///
    /// # Errors
    ///
    /// Fails when the runtime refuses.
    pub fn remove_sandbox(&self, sandbox: &str) -> Result<()> {
        let pod_sandbox_id = sandbox.to_string();
        call!(self.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }))?;
        call!(self.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id })).map(|_| ())
    }

    /// All sandboxes.
    ///
    /// # Errors
    ///
    /// Fails when the runtime does not answer.
    pub fn sandboxes(&self) -> Result<Vec<PodSandbox>> {
        call!(self.list_pod_sandbox(ListPodSandboxRequest {})).map(|response| response.items)
    }

    /// All containers, also the exited.
    ///
    /// # Errors
    ///
    /// Fails when the runtime does not answer.
    pub fn containers(&self) -> Result<Vec<Container>> {
        call!(self.list_containers(ListContainersRequest {})).map(|response| response.containers)
    }

    /// Status of a container with the runtime's own record.
    ///
    /// # Errors
    ///
    /// Fails when the runtime does not know it.
    pub fn status(&self, container: &str) -> Result<ContainerStatusResponse> {
        let request = ContainerStatusRequest { container_id: container.to_string(), verbose: true };
        call!(self.container_status(request))
    }

    /// Process id, on this machine, of a container's first process.
    ///
    /// # Errors
    ///
    /// Fails when the runtime's record has none.
    pub fn pid(&self, container: &str) -> Result<i32> {
        let status = self.status(container)?;
        let info = status.info.get("info").context("the runtime gives no record of the container")?;
        let info: Value = serde_json::from_str(info).context("the runtime's record is not JSON")?;
        let pid = info["pid"].as_i64().context("the runtime's record has no pid")?;
        i32::try_from(pid).context("a process id out of range")
    }

    /// Removes every container and sandbox.
    ///
    /// # Errors
    ///
    /// Fails at the first that resists.
    pub fn remove_all(&self) -> Result<()> {
        for container in self.containers()? {
            self.remove_container(&container.id)?;
        }
        for sandbox in self.sandboxes()? {
            self.remove_sandbox(&sandbox.id)?;
        }
        Ok(())
    }
}
