"""The token that guards a port, and the file where programs of this machine find it."""

import os
import secrets
from pathlib import Path
from typing import Protocol as Interface

import attrs

from agentmesh.membership.state import StateError
from agentmesh.protocols.http import ASGIApp, Receive, Scope, Send
from agentmesh.services import Answer

TOKEN_BYTES = 32
MAX_TOKEN_CHARACTERS = 4096
OPEN_PATHS = frozenset({b"/healthz", b"/readyz"})
CHALLENGE = "Bearer"
MESH_AUTHENTICATION = b"x-mesh-authentication"  # in its place Authorization is the service's


def load_or_create_token(path: Path) -> str:
    """The token in a file; a new one, in a new file that only its owner reads, when there is none.

    Raises:
        StateError: the file holds no token, or others may read it.
        OSError: it cannot be read or made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _load(path)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{token}\n")
    return token


def _load(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise StateError(f"{path}: others may read this token; chmod 600")
    token = path.read_text(encoding="utf-8", errors="replace")[:MAX_TOKEN_CHARACTERS].strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise StateError(f"{path}: holds no token, which is one word of ASCII")
    return token


class Sendable(Interface):
    """An answer over ASGI."""

    async def send(self, send: Send) -> None: ...


class Refuse(Interface):
    """Makes such an answer."""

    def __call__(self, status: int, error: str, text: str, challenge: str, /) -> Sendable: ...


@attrs.frozen
class Guarded:
    """An ASGI application for whoever shows a token, as `X-Mesh-Authentication: Bearer …` or, where that is missing, as
    `Authorization: Bearer …`. Neither with the token in it goes further.

    Attributes:
        whose: whose token it is, for those who have another.
        refuse: makes what they are answered.
    """

    app: ASGIApp
    token: str = attrs.field(repr=False)
    whose: str = "this node"
    refuse: Refuse = Answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["raw_path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        names = {name for name, _ in scope["headers"]}
        shown = MESH_AUTHENTICATION if MESH_AUTHENTICATION in names else b"authorization"
        values = [value for name, value in scope["headers"] if name == shown]
        refusal = self._judge(values)
        if refusal is not None:
            await refusal.send(send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != shown]
        await self.app({**scope, "headers": headers}, receive, send)

    def _judge(self, values: list[bytes]) -> Sendable | None:
        scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not token.strip():
            text = f"show the token of {self.whose}: Authorization: Bearer <token>"
            return self.refuse(401, "no-token", text, CHALLENGE)
        if not secrets.compare_digest(token.strip(), self.token.encode("ascii")):
            return self.refuse(403, "wrong-token", f"that is not the token of {self.whose}", CHALLENGE)
        return None
