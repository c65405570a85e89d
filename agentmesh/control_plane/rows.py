"""Rows of the tables as records, and back."""

import json
from collections.abc import Mapping
from typing import Any

from agentmesh.control_plane.records import BootstrapToken, Enrollment, EnrollmentRequest, Issue, Lease, Node, Status
from agentmesh.types import Address, PeerId

AnyRow = Any  # what has the columns of a table as attributes


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)


def to_seconds(ms: int) -> float:
    return ms / 1000


def optional_seconds(ms: int | None) -> float | None:
    return None if ms is None else to_seconds(ms)


def token_of(row: AnyRow) -> BootstrapToken:
    return BootstrapToken(
        id=row.id,
        role=row.role,
        max_usages=row.max_usages,
        created_at=to_seconds(row.created_at),
        expires_at=to_seconds(row.expires_at),
        description=row.description,
        usages=row.usages_count,
        revoked_at=optional_seconds(row.revoked_at),
    )


def token_values(token: BootstrapToken) -> Mapping[str, object]:
    return {
        "id": token.id,
        "role": token.role,
        "max_usages": token.max_usages,
        "usages_count": token.usages,
        "description": token.description,
        "created_at": to_ms(token.created_at),
        "expires_at": to_ms(token.expires_at),
        "revoked_at": None if token.revoked_at is None else to_ms(token.revoked_at),
    }


def enrollment_of(row: AnyRow) -> Enrollment:
    return Enrollment(
        id=row.id,
        peer=PeerId.parse(row.peer_id),
        token_id=row.token_id,
        role=row.role,
        labels=json.loads(row.labels_json),
        status=Status(row.status),
        created_at=to_seconds(row.created_at),
        resolved_at=optional_seconds(row.resolved_at),
    )


def request_values(request: EnrollmentRequest) -> Mapping[str, object]:
    return {
        "peer_id": str(request.peer),
        "token_id": request.token_id,
        "role": request.role,
        "labels_json": labels_json(request.labels),
    }


def labels_json(labels: Mapping[str, str]) -> str:
    return _json(dict(labels))


def node_of(row: AnyRow) -> Node:
    return Node(
        peer=PeerId.parse(row.peer_id),
        role=row.role,
        labels=json.loads(row.labels_json),
        enrolled_at=to_seconds(row.enrolled_at),
        issue=Issue(credential=row.biscuit_token, expires_at=to_seconds(row.expires_at), request=row.issued_for),
    )


def issue_values(issue: Issue) -> Mapping[str, object]:
    return {
        "biscuit_token": issue.credential,
        "expires_at": to_ms(issue.expires_at),
        "issued_for": issue.request,
    }


def lease_of(row: AnyRow) -> Lease:
    return Lease(
        peer=PeerId.parse(row.peer_id),
        addresses=tuple(Address.parse(text) for text in json.loads(row.multiaddresses)),
        renewed_at=to_seconds(row.last_lease_renewal),
        expires_at=to_seconds(row.expires_at),
        connected_peers=row.connected_peers,
        directory_size=row.dht_size,
        connections=row.connections,
        connection_limit=row.connection_limit,
        labels=json.loads(row.labels_json),
    )


def lease_values(lease: Lease) -> Mapping[str, object]:
    return {
        "multiaddresses": _json([str(address) for address in lease.addresses]),
        "last_lease_renewal": to_ms(lease.renewed_at),
        "expires_at": to_ms(lease.expires_at),
        "connected_peers": lease.connected_peers,
        "dht_size": lease.directory_size,
        "connections": lease.connections,
        "connection_limit": lease.connection_limit,
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
