"""Questions to a recommender."""
from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from evenkeel.connection import Connection, setting
from evenkeel.v1 import (
    capacity_pb2,
    capacity_pb2_grpc,
    policy_pb2,
    policy_pb2_grpc,
    recommender_pb2,
    recommender_pb2_grpc,
    types_pb2,
)

#: A pod as text in YAML or JSON, or as the object that its JSON stands for.
Pod = Union[str, Mapping[str, Any]]


class Recommender(Connection):
    """A running recommender, by default the one of this machine.

    Address and trust that are not given come from EVENKEEL_RECOMMENDER, EVENKEEL_TOKEN_FILE, EVENKEEL_CA_FILE,
    EVENKEEL_CERT_FILE and EVENKEEL_KEY_FILE, as with the command line. See :class:`~evenkeel.connection.Connection`.
    Calls that have no method here are made by :attr:`stub`, :attr:`capacity_stub` and :attr:`policy_stub`.
    """

    def __init__(self, address: Optional[str] = None, **trust: Any) -> None:
        for name in ("token_file", "ca_file", "cert_file", "key_file"):
            trust[name] = setting(trust.get(name), f"EVENKEEL_{name.upper()}")
        super().__init__(setting(address, "EVENKEEL_RECOMMENDER") or "unix:///run/evenkeel/recommender.sock", **trust)
        self.stub = recommender_pb2_grpc.RecommenderServiceStub(self.channel)
        self.capacity_stub = capacity_pb2_grpc.CapacityServiceStub(self.channel)
        self.policy_stub = policy_pb2_grpc.PolicyServiceStub(self.channel)

    def recommendations(
        self, namespace: str = "", *, rules: Sequence[str] = (), selector: str = ""
    ) -> "list[recommender_pb2.Recommendation]":
        """What each container should request: one answer for each container and resource.

        :param rules: rules to answer by, such as ``goal`` and ``vpa``; ``*`` stands for all.
        :param selector: labels of pods, such as ``app=web,!canary``.
        """
        asked = recommender_pb2.ListRecommendationsRequest(namespace=namespace, rules=rules, selector=selector)
        return list(self.call(self.stub.ListRecommendations, asked).recommendations)

    def recommend(self, pod: Pod, *, rules: Sequence[str] = ()) -> recommender_pb2.RecommendPodResponse:
        """What the containers of one pod should request; it need not exist."""
        return self.call(self.stub.RecommendPod, recommender_pb2.RecommendPodRequest(pod=_text(pod), rules=rules))

    def usage(
        self, namespace: str = "", workload: str = "", container: str = "", *, window: Optional[timedelta] = None
    ) -> "list[types_pb2.UsageRecord]":
        """Use as percentiles over a window, all that is kept unless one is given."""
        asked = recommender_pb2.QueryUsageRequest(
            namespace=namespace, workload=workload, container=container, window_seconds=_seconds(window)
        )
        return list(self.call(self.stub.QueryUsage, asked).records)

    def series(
        self,
        resource: str,
        namespace: str = "",
        workload: str = "",
        container: str = "",
        *,
        step: Optional[timedelta] = None,
        start: Optional[datetime] = None,
        end: Optional[datetime] = None,
    ) -> "Iterator[recommender_pb2.QuerySeriesResponse]":
        """Use over time, piece by piece; CPU in millionths of a core, memory in bytes.

        :param resource: ``cpu`` or ``memory``.
        :param step: a second, a minute (the default), an hour or a day.
        """
        asked = recommender_pb2.QuerySeriesRequest(
            resource=resource,
            namespace=namespace,
            workload=workload,
            container=container,
            step_seconds=_seconds(step),
            from_seconds=_moment(start),
            to_seconds=_moment(end),
        )
        return self.stream(self.stub.QuerySeries, asked, self.timeout)

    def nodes(self) -> "list[recommender_pb2.Node]":
        """The nodes it hears from."""
        return list(self.call(self.stub.ListNodes, recommender_pb2.ListNodesRequest()).nodes)

    def namespaces(self) -> "list[recommender_pb2.Namespace]":
        """What containers of each namespace request, use and should request."""
        return list(self.call(self.stub.ListNamespaces, recommender_pb2.ListNamespacesRequest()).namespaces)

    def events(self, limit: int = 0) -> "list[types_pb2.Decision]":
        """Decisions of all nodes, as many as are kept unless a limit is given."""
        return list(self.call(self.stub.ListEvents, recommender_pb2.ListEventsRequest(limit=limit)).events)

    def watch_usage(self, node: str = "") -> "Iterator[types_pb2.ContainerUsage]":
        """Live use, second by second, without an end."""
        asked = recommender_pb2.RecommenderServiceWatchUsageRequest(node=node)
        for answer in self.stream(self.stub.WatchUsage, asked):
            if answer.HasField("usage"):
                yield answer.usage

    def capacity(self, *pods: Pod, snapshot: str = "", **options: Any) -> capacity_pb2.EstimateResponse:
        """How many more of these pods fit; options have the names of the command line in camelCase."""
        asked = capacity_pb2.EstimateRequest(
            pods=[_text(pod) for pod in pods], snapshot=snapshot, options_json=json.dumps(options) if options else ""
        )
        return self.call(self.capacity_stub.Estimate, asked)

    def policies(self, namespace: str = "") -> "list[dict[str, Any]]":
        """Policy objects with their status."""
        answer = self.call(self.policy_stub.List, policy_pb2.ListRequest(namespace=namespace))
        return [json.loads(policy) for policy in answer.policies]


def _text(pod: Pod) -> str:
    return pod if isinstance(pod, str) else json.dumps(pod)


def _seconds(span: Optional[timedelta]) -> int:
    return 0 if span is None else int(span.total_seconds())


def _moment(at: Optional[datetime]) -> int:
    return 0 if at is None else int(at.timestamp())
