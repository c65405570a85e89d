"""The key ring as it is stored: one key signs, those that it followed are honoured for a while."""

from collections.abc import Sequence

import attrs
from sqlalchemy import Connection, delete, insert, select, update

from agentmesh.control_plane import rows
from agentmesh.control_plane.database import RacedError
from agentmesh.control_plane.generations import Topic, changed
from agentmesh.control_plane.schema import keyring


@attrs.frozen
class StoredKey:
    """A signing key. Instants are wall-clock seconds."""

    id: int  # in the order in which they came
    private_key: bytes = attrs.field(repr=False)  # 32 bytes
    created_at: float
    expires_at: float | None = None  # when it stops being honoured; None: it signs


def keys(connection: Connection) -> tuple[StoredKey, ...]:
    """Oldest first; the last one signs."""
    found = connection.execute(select(keyring).order_by(keyring.c.id))
    return tuple(
        StoredKey(row.id, row.private_key, rows.to_seconds(row.created_at), rows.optional_seconds(row.expires_at))
        for row in found
    )


def first_key(connection: Connection, candidate: bytes, now: float) -> None:
    """Make `candidate` the key that signs if there is none."""
    if connection.execute(select(keyring.c.id).limit(1)).one_or_none() is None:
        _add(connection, 1, candidate, now)


def rotate(connection: Connection, seen: StoredKey, candidate: bytes, now: float, grace: float) -> None:
    """Retire the key that signs, and let `candidate` sign. Keys whose time is over are forgotten.

    Args:
        seen: the key that signs, as it was read.
        grace: seconds that it is honoured for after this.
    Raises:
        RacedError: another replica has retired it.
    """
    still_signs = (keyring.c.id == seen.id, keyring.c.expires_at.is_(None))
    retired = update(keyring).where(*still_signs).values(expires_at=rows.to_ms(now + grace))
    if connection.execute(retired).rowcount != 1:
        raise RacedError("the key was retired by another replica")
    connection.execute(delete(keyring).where(keyring.c.expires_at <= rows.to_ms(now)))
    _add(connection, seen.id + 1, candidate, now)


def _add(connection: Connection, number: int, private_key: bytes, now: float) -> None:
    values = {"id": number, "private_key": private_key, "created_at": rows.to_ms(now), "expires_at": None}
    connection.execute(insert(keyring).values(values))
    changed(connection, Topic.KEYS)


def honoured(ring: Sequence[StoredKey], now: float) -> tuple[StoredKey, ...]:
    """Those whose credentials are good at `now`, oldest first."""
    return tuple(key for key in ring if key.expires_at is None or key.expires_at > now)
