"""Questions to the agent of a node."""
from __future__ import annotations

from typing import Any, Iterator, Optional

from evenkeel.connection import Connection, setting
from evenkeel.v1 import agent_pb2, agent_pb2_grpc, types_pb2


class Agent(Connection):
    """A running agent, by default the one of this machine; its socket is root's.

    Address and trust that are not given come from EVENKEEL_AGENT, EVENKEEL_AGENT_TOKEN_FILE, EVENKEEL_CA_FILE,
    EVENKEEL_CERT_FILE and EVENKEEL_KEY_FILE. Calls that have no method here are made by :attr:`stub`.
    """

    def __init__(self, address: Optional[str] = None, **trust: Any) -> None:
        trust["token_file"] = setting(trust.get("token_file"), "EVENKEEL_AGENT_TOKEN_FILE")
        for name in ("ca_file", "cert_file", "key_file"):
            trust[name] = setting(trust.get(name), f"EVENKEEL_{name.upper()}")
        super().__init__(setting(address, "EVENKEEL_AGENT") or "unix:///run/evenkeel/agent.sock", **trust)
        self.stub = agent_pb2_grpc.AgentServiceStub(self.channel)

    def status(self) -> agent_pb2.GetStatusResponse:
        """Mode, containers with every knob, pressure, sources."""
        return self.call(self.stub.GetStatus, agent_pb2.GetStatusRequest())

    def containers(self) -> "list[agent_pb2.ContainerStatus]":
        """The containers, with class and state."""
        return list(self.call(self.stub.ListContainers, agent_pb2.ListContainersRequest()).containers)

    def admit(self, pod: str) -> agent_pb2.AdmitResponse:
        """Whether a pod, in YAML or JSON, fits this node by the sum of requests."""
        return self.call(self.stub.Admit, agent_pb2.AdmitRequest(pod=pod))

    def watch_usage(self) -> "Iterator[types_pb2.ContainerUsage]":
        """Live use of the node's containers, second by second, without an end."""
        for answer in self.stream(self.stub.WatchUsage, agent_pb2.WatchUsageRequest()):
            if answer.HasField("usage"):
                yield answer.usage
