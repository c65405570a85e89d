"""What an operator sees of an agent's process: its metrics, under the names agentmesh_agent_*, and `/debug/pool`."""

from collections.abc import Iterator
from typing import Any

import trio
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from agentmesh.agent.compose import AgentProcess
from agentmesh.control_plane.times import instant_text
from agentmesh.membership.pages import Family, Gauges, make_pages
from agentmesh.pool.agent.link import AgentLink
from agentmesh.pool.agent.scaling import Record, Report, Seen
from agentmesh.pool.metrics import SCALE_DECISIONS, Samples, agent_samples

PREFIX = "agentmesh_agent"


def agent_pages(agent: AgentProcess) -> Starlette:
    """`/metrics`, `/healthz`, `/readyz` and `/debug/pool`."""
    settings, scaler = agent.pool.settings, agent.pool.controller.scaler
    registry = CollectorRegistry()
    registry.register(Gauges(PREFIX, lambda: _families(agent)))
    registry.register(
        Samples(
            [SCALE_DECISIONS],
            lambda: agent_samples(settings.agent_id, scaler.counts, settings.instance.instance_id),
        )
    )
    return make_pages(registry, lambda: agent.is_ready, {"pool": lambda _: pool_view(agent)})


def _families(agent: AgentProcess) -> Iterator[Family]:
    controller, links = agent.pool.controller, tuple(agent.pool.links.values())
    active = agent.connections
    states = {
        "active": len(active),
        "draining": sum(link.control.machine.is_draining for link in links),
        "missing": max(controller.count - len(active), 0),
    }
    yield Family("ready", "1 while a router has taken a connection.", agent.is_ready)
    yield Family("connections", "Connections, and those that are to be.", states, ("state",))
    yield Family("connections_limit", "Connections that it may have.", controller.ceiling)
    yield Family("routers", "Routers that have taken a connection.", len({link.session.peer for link in active}))
    yield Family("streams", "Streams that are open.", sum(len(link.opens) for link in links))
    yield Family(
        "biscuit_expiry_timestamp_seconds", "When its credential ends.", agent.membership.credential.expires_at
    )


def pool_view(agent: AgentProcess) -> dict[str, Any]:
    """The connections, and the last evaluations of how many there are to be, the newest first."""
    settings, controller = agent.pool.settings, agent.pool.controller
    now, wall = trio.current_time(), agent.membership.wall_clock()
    records = reversed(controller.scaler.records)
    return {
        "agentId": settings.agent_id,
        "instanceId": settings.instance.instance_id,
        "instanceIdKept": settings.instance.is_kept,
        "peerId": str(agent.peer),
        "ready": agent.is_ready,
        "connectionCount": controller.count,
        "ceiling": controller.ceiling,
        "connections": [_connection(link, now) for link in agent.pool.links.values()],
        "scaling": [_record(record, wall - now) for record in records],
    }


def _connection(link: AgentLink, now: float) -> dict[str, Any]:
    machine = link.control.machine
    state = "draining" if machine.is_draining else "active" if link.joined.is_set() else "joining"
    return {
        "connectionId": link.connection_id,
        "state": state,
        "router": str(link.session.peer),
        "serverNodeId": link.ack.server_node_id if link.ack else None,
        "address": str(link.session.address) if link.session.address else None,
        "epoch": str(link.ack.epoch) if link.ack else None,  # a number that JSON's readers may round
        **_report(link.report(now)),
    }


def _record(record: Record, wall_offset: float) -> dict[str, Any]:
    return {
        "at": instant_text(record.at + wall_offset),
        "decision": record.decision,
        "reason": record.reason,
        "wanted": record.wanted,
        "connections": record.connections,
        "ceiling": record.ceiling,
        "inputs": [_seen(one) for one in record.seen],
    }


def _seen(seen: Seen) -> dict[str, Any]:
    return {
        "connectionId": seen.connection_id,
        "ageSeconds": round(seen.age, 3),
        "bestRttMs": _milliseconds(seen.best_rtt),
        **_report(seen.report),
    }


def _report(report: Report) -> dict[str, Any]:
    return {
        "activeStreams": report.active_streams,
        "queuePressure": round(report.queue_pressure, 3),
        "queueWaitMs": _milliseconds(report.queue_wait),
        "rttMs": _milliseconds(report.rtt),
        "transportErrors": report.transport_errors,
        "openFailures": report.open_failures,
        "targetWaitMs": _milliseconds(report.target_wait),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
