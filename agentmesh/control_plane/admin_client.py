"""What an admin's programs call the control plane with."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random
from typing import Any, cast

import attrs
import httpx

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.exchange import Exchange, Outgoing, open_http
from agentmesh.errors import RemoteProtocolError


class AdminClient:
    """Calls one control plane as an admin. Made by `open_admin`.

    Every call is tried once, as two tries of some would do two things. It raises RequestRefusedError
    (UnauthorizedError when that is for the admin token), ControlPlaneUnavailableError, or RemoteProtocolError when what
    answers is no control plane.
    """

    def __init__(self, exchange: Exchange, admin_token: str) -> None:
        self._exchange, self._admin_token = exchange, admin_token

    async def call(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """Send a request, with a body of JSON if there is one; give what the answer says, None when it is empty."""
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self._admin_token}"}
        content = b""
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        outgoing = Outgoing(method, path, content, headers, query)
        answer = await self._exchange.call(lambda _: outgoing)
        try:
            return json.loads(answer) if answer else None
        except ValueError:  # the answer may hold a secret, so no cause
            raise RemoteProtocolError("the control plane's answer is no JSON") from None


@asynccontextmanager
async def open_admin(
    url: str, admin_token: str, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncGenerator[AdminClient]:
    """`async with open_admin("https://mesh.example", token) as admin:`

    Args:
        url: of the control plane.
        admin_token: what it knows admins by.
        transport: for tests.
    Raises:
        ValueError: `url` is no HTTP URL.
    """
    async with open_http(url, transport) as http:
        exchange = Exchange(http, wall_clock=lambda: 0.0, rng=Random(0), backoff=Backoff(budget=0.0))
        yield AdminClient(exchange, admin_token)


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
    """Have a control plane make a bootstrap token.

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
        ControlPlaneError, RemoteProtocolError: as every call of AdminClient.
    """
    wanted = {"role": role, "max_usages": max_usages, "ttl": ttl, "description": description}
    async with open_admin(url, admin_token, transport) as admin:
        return _token_of(await admin.call("POST", "/admin/bootstrap-tokens", wanted))


def _token_of(sent: object) -> CreatedToken:
    try:
        fields = cast(dict[str, Any], sent)
        expires_at = datetime.fromisoformat(fields["expires_at"]).timestamp()
        return CreatedToken(fields["token"], fields["id"], fields["role"], fields["max_usages"], expires_at)
    except (ValueError, KeyError, TypeError):  # the answer holds a secret, so no cause
        raise RemoteProtocolError("the control plane's answer is no bootstrap token") from None
