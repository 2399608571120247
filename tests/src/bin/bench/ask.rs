//! Questions to the running agent.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_proto::tonic::transport::{Channel, Endpoint};
use evenkeel_proto::v1::agent_service_client::AgentServiceClient;
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, GetStatusRequest, GetStatusResponse};
use tokio::runtime::Runtime;

use crate::run::Run;

/// A connection to the agent.
pub(crate) struct Asking {
    runtime: Runtime,
    agent: AgentServiceClient<Channel>,
}

/// What the agent says of one container's scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    /// Number of the wish; grows when it changes.
    pub(crate) generation: u64,
    /// Score every process should have.
    pub(crate) wanted: i32,
    /// Whether every process was seen to have it.
    pub(crate) converged: bool,
}

impl Asking {
    /// Connects.
    pub(crate) fn connect(socket: &Path) -> Result<Asking> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = format!("unix://{}", socket.display());
        let endpoint = Endpoint::from_shared(address).context("not an address")?;
        let channel = runtime.block_on(endpoint.connect()).context("cannot connect to the agent")?;
        Ok(Asking { runtime, agent: AgentServiceClient::new(channel) })
    }

    /// The agent's status.
    pub(crate) fn status(&mut self) -> Result<GetStatusResponse> {
        let answer = self.runtime.block_on(self.agent.get_status(GetStatusRequest {}));
        Ok(answer.context("the agent does not give its status")?.into_inner())
    }

    /// Waits until that many containers' scores are right and the stream stands where it should.
    pub(crate) fn await_converged(
        &mut self,
        run: &Run,
        count: u32,
        streaming: bool,
    ) -> Result<GetStatusResponse> {
        let patience = Duration::from_secs(120);
        let deadline = Instant::now() + patience;
        loop {
            let status = self.status()?;
            let right = status.containers.iter().filter_map(said).filter(|said| said.converged).count();
            let stream = status.stream.as_ref();
            let streams = !streaming || stream.is_some_and(|s| s.connected && s.last_acknowledged > 0);
            if right == count as usize && streams {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!(
                    "after {patience:?} the agent has {right} of {count} containers converged; stream: {stream:?}; \
                     first other: {:?}",
                    status.containers.iter().find(|c| !said(c).is_some_and(|said| said.converged))
                );
            }
            run.sleep(Duration::from_millis(200))?;
        }
    }

    /// What the agent says of one pod's container, if it knows it.
    pub(crate) fn said(&mut self, pod: &str) -> Result<Option<Said>> {
        let status = self.status()?;
        let of_pod = |c: &&ContainerStatus| c.identity.as_ref().is_some_and(|identity| identity.pod == pod);
        Ok(status.containers.iter().find(of_pod).and_then(said))
    }
}

/// The scores' part of a container's status.
pub(crate) fn said(container: &ContainerStatus) -> Option<Said> {
    let knob = container.knobs.iter().find(|knob| knob.name == "oom_score_adj")?;
    Some(Said {
        generation: container.generation,
        wanted: knob.wanted.as_ref()?.parse().ok()?,
        converged: knob.state() == ConvergeState::Converged,
    })
}
