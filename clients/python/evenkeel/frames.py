"""Answers as pandas frames; needs the extra ``pandas``: pip install './clients/python[pandas]'.

Cores and bytes as numbers, times as timestamps in UTC, what is not known as NaN or NaT.
"""
from __future__ import annotations

from typing import Any, Iterable, Optional

import pandas as pd

from evenkeel.v1 import recommender_pb2, types_pb2

#: What one unit of a resource is on the wire.
_MILLI = 1000
#: Columns of frames without a row.
_RECOMMENDED = (
    "cluster namespace workload container resource current request lower upper limit replicas rule tier samples span "
    "confidence risk_now risk_then policy young"
).split()
_USED = "namespace workload container resource mean max min count window confidence dropped".split()
_NODES = (
    "cluster node connected containers cpu cpu_requested cpu_used memory memory_requested memory_used gaps last_seen"
).split()


def recommendations(answers: "Iterable[recommender_pb2.Recommendation]") -> pd.DataFrame:
    """A row for each container and resource: cores or bytes now and recommended, bounds, risk and confidence."""
    return _frame(
        _RECOMMENDED,
        (
            {
                "cluster": one.cluster,
                "namespace": one.namespace,
                "workload": one.workload,
                "container": one.container,
                "resource": one.resource,
                **{name: _amount(one.resource, _known(one, name)) for name in ("current", "request", "lower", "upper", "limit")},
                "replicas": one.replicas,
                "rule": one.rule,
                "tier": one.tier,
                "samples": one.samples,
                "span": pd.Timedelta(seconds=one.span_seconds),
                **{name: _known(one, name) for name in ("confidence", "risk_now", "risk_then")},
                "policy": one.policy,
                "young": one.young,
            }
            for one in answers
        ),
    )


def usage(records: "Iterable[types_pb2.UsageRecord]") -> pd.DataFrame:
    """A row for each container and resource: mean, maximum, minimum and percentiles (columns ``p50`` and so on)."""
    rows = []
    for record in records:
        for resource, stats in sorted(record.usage.items()):
            amounts = {name: _amount(resource, _known(stats, name)) for name in ("mean", "max", "min")}
            percentiles = sorted(stats.percentiles.items(), key=lambda item: float(item[0]))
            rows.append(
                {
                    "namespace": record.namespace,
                    "workload": record.workload,
                    "container": record.container,
                    "resource": resource,
                    **amounts,
                    **{f"p{name}": _amount(resource, value) for name, value in percentiles},
                    "count": stats.count,
                    "window": pd.Timedelta(seconds=record.window_seconds),
                    "confidence": _known(record, "confidence"),
                    "dropped": record.dropped,
                }
            )
    return _frame(_USED, rows)


def series(pieces: "Iterable[recommender_pb2.QuerySeriesResponse]", resource: str) -> pd.DataFrame:
    """Use over time: a row for each time, a column for each series; gaps are NaN."""
    columns: "dict[str, dict[int, float]]" = {}
    unit = 1e6 if resource == "cpu" else 1.0
    for piece in pieces:
        columns.setdefault(piece.series, {}).update((at, value / unit) for at, value in zip(piece.times, piece.values))
    frame = pd.DataFrame({name: pd.Series(values, dtype="float64") for name, values in columns.items()}).sort_index()
    frame.index = pd.to_datetime(frame.index, unit="s", utc=True).rename("time")
    return frame


def nodes(answers: "Iterable[recommender_pb2.Node]") -> pd.DataFrame:
    """A row for each node: size, what is requested and used of it, and when it was last heard."""
    rows = []
    for node in answers:
        cpu, memory = node.allocated.cpu, node.allocated.memory
        rows.append(
            {
                "cluster": node.cluster,
                "node": node.name,
                "connected": node.connected,
                "containers": node.containers,
                "cpu": node.facts.cpu_milli / _MILLI,
                "cpu_requested": cpu.requested / _MILLI,
                "cpu_used": cpu.used / _MILLI,
                "memory": float(node.facts.memory_bytes),
                "memory_requested": float(memory.requested),
                "memory_used": float(memory.used),
                "gaps": node.gaps,
                "last_seen": pd.to_datetime(node.last_seen_usec, unit="us", utc=True) if node.last_seen_usec else pd.NaT,
            }
        )
    return _frame(_NODES, rows)


def _frame(columns: "list[str]", rows: "Iterable[dict[str, Any]]") -> pd.DataFrame:
    """A frame of rows; where there is none, one with the columns that do not depend on them."""
    found = list(rows)
    return pd.DataFrame(found) if found else pd.DataFrame(columns=columns)


def _known(message: Any, field: str) -> Optional[Any]:
    """A field that may be absent."""
    return getattr(message, field) if message.HasField(field) else None


def _amount(resource: str, value: Optional[int]) -> float:
    """Cores, or bytes; NaN where it is not known."""
    if value is None:
        return float("nan")
    return value / _MILLI if resource == "cpu" else float(value)
