"""What an admin's programs call the control plane with."""

import json
from datetime import datetime
from random import Random
from typing import Any, cast

import attrs
import httpx

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.exchange import Exchange, Outgoing, open_http
from agentmesh.errors import RemoteProtocolError


@attrs.frozen
class CreatedToken:
    """A new bootstrap token."""

    value: str = attrs.field(repr=False)
    id: str
    role: str
    max_usages: int
    expires_at: float  # wall-clock seconds


async def create_token_at(
    url: str,
    admin_token: str,
    *,
    role: str,
    max_usages: int,
    ttl: float,
    description: str = "",
    transport: httpx.AsyncBaseTransport | None = None,
) -> CreatedToken:
    """Have a control plane make a bootstrap token. Tried once: two tries could make two.

    Args:
        url: of the control plane.
        admin_token: what it knows admins by.
        role: "node" or "router".
        max_usages: how many enrollments it is good for.
        ttl: seconds until it expires.
        description: free text for the list of tokens.
        transport: for tests.
    Raises:
        ValueError: `url` is no HTTP URL.
        RequestRefusedError: the control plane says no; UnauthorizedError when that is for the admin token.
        ControlPlaneUnavailableError: it does not answer.
        RemoteProtocolError: what answers is no control plane.
    """
    body = {"role": role, "max_usages": max_usages, "ttl": ttl, "description": description}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {admin_token}"}
    outgoing = Outgoing("POST", "/admin/bootstrap-tokens", json.dumps(body).encode(), headers)
    async with open_http(url, transport) as http:
        exchange = Exchange(http, wall_clock=lambda: 0.0, rng=Random(0), backoff=Backoff(budget=0.0))
        return _token_of(await exchange.call(lambda _: outgoing))


def _token_of(body: bytes) -> CreatedToken:
    try:
        sent = cast(dict[str, Any], json.loads(body))
        expires_at = datetime.fromisoformat(sent["expires_at"]).timestamp()
        return CreatedToken(sent["token"], sent["id"], sent["role"], sent["max_usages"], expires_at)
    except (ValueError, KeyError, TypeError):  # the body holds a secret, so no cause
        raise RemoteProtocolError("the control plane's answer is no bootstrap token") from None
