"""Bootstrap tokens: invitations to enroll, known only by their hash."""

import hashlib
import re
import secrets
from collections.abc import Callable

from agentmesh.control_plane.records import BootstrapToken, TokenOwner
from agentmesh.control_plane.refusals import bad_request
from agentmesh.control_plane.store import Store
from agentmesh.credentials import ROLES

PREFIX = "mesh-bt-"
SECRET_BYTES = 16
MAX_USAGES = 1_000_000
MAX_TTL = 10 * 365 * 86400.0  # seconds
MAX_DESCRIPTION_CHARACTERS = 1000

TOKEN_ID = re.compile(r"[0-9a-f]{64}")  # sha256, in hex


def token_id(value: str) -> str:
    """What a bootstrap token is stored and spoken of as: its sha256 in hex."""
    return hashlib.sha256(value.encode()).hexdigest()


def full_role(name: str) -> str:
    """ "node" or "mesh:role:node" as the latter. Raises RefusedError when there is no such role."""
    role = ROLES.get(name, name)
    if role not in ROLES.values():
        raise bad_request(f"there is no such role; the roles are {', '.join(ROLES)}")
    return role


async def create_token(
    store: Store,
    wall_clock: Callable[[], float],
    *,
    role: str,
    max_usages: int,
    ttl: float,
    description: str = "",
    owner: TokenOwner | None = None,
) -> tuple[str, BootstrapToken]:
    """Make an invitation.

    Args:
        store: where its hash is kept.
        wall_clock: gives the seconds since 1970.
        role: what its users become: "node" or "router", in short or in full.
        max_usages: how many enrollments it is good for.
        ttl: seconds until it expires.
        description: free text, for the operator's list of tokens.
        owner: whose it is, and so whose its nodes are.
    Returns:
        The value, which is never shown again, and the record.
    Raises:
        RefusedError: an argument is out of range.
        StoreError: the database does not answer.
    """
    if not 1 <= max_usages <= MAX_USAGES:
        raise bad_request(f"max_usages is from 1 to {MAX_USAGES}")
    if not 0 < ttl <= MAX_TTL:
        raise bad_request(f"ttl is above 0 and at most {MAX_TTL:.0f} seconds")
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        raise bad_request(f"description is longer than {MAX_DESCRIPTION_CHARACTERS} characters")
    value, now = PREFIX + secrets.token_hex(SECRET_BYTES), wall_clock()
    token = BootstrapToken(
        id=token_id(value),
        role=full_role(role),
        max_usages=max_usages,
        created_at=now,
        expires_at=now + ttl,
        description=description,
    )
    await store.add_token(token, owner)
    return value, token
