"""etcd version 3 through its HTTP gateway: keys, transactions and leases as JSON, with errors of ours.

Numbers of 64 bits are strings there, keys and values base64. Made against 3.4; later ones speak the same.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import attrs
import httpx
import trio

from agentmesh.pool.registry.errors import RegistryError, RegistryRefusedError, RegistryUnavailableError

ANSWER_TIMEOUT = 5.0  # seconds for one request, whichever member answers

PAGE = 500  # keys of one reading

# gRPC's codes, as the gateway passes them on.
NOT_FOUND = 5
UNAUTHENTICATED = 16
LASTING_CODES = frozenset({3, 5, 6, 7, 9, 11, 12})  # what was asked is wrong, forbidden or not known there

Json = Mapping[str, Any]


class LeaseGoneError(RegistryError):
    """The lease has run out or was revoked. Nothing was written."""


class TokenGoneError(RegistryRefusedError):
    """etcd does not know the token that it gave, or wants one."""


@attrs.frozen
class KeyValue:
    """A key as it was read. `mod_revision` tells its last writing from all others; lease 0 is none."""

    key: str
    value: bytes
    mod_revision: int
    lease: int


@attrs.frozen
class Found:
    """What a reading gave: the keys, and how many there are."""

    kvs: tuple[KeyValue, ...]
    count: int

    @property
    def only(self) -> KeyValue | None:
        return self.kvs[0] if self.kvs else None


def get(key: str) -> Json:
    return {"request_range": {"key": _text(key)}}


def get_below(
    prefix: str, limit: int = 0, *, after: str = "", count_only: bool = False, oldest_first: bool = False
) -> Json:
    """Read the keys that begin with `prefix`.

    Args:
        limit: 0 is all.
        after: begin with the key behind this one.
    """
    asked: dict[str, Any] = {
        "key": _text(f"{after}\x00" if after else prefix),
        "range_end": _text(prefix[:-1] + chr(ord(prefix[-1]) + 1)),
        "limit": str(limit),
        "count_only": count_only,
    }
    order = {"sort_order": "ASCEND", "sort_target": "MOD"} if oldest_first else {}
    return {"request_range": asked | order}


def put(key: str, value: bytes, lease: int = 0) -> Json:
    return {"request_put": {"key": _text(key), "value": b64encode(value).decode(), "lease": str(lease)}}


def delete(key: str) -> Json:
    return {"request_delete_range": {"key": _text(key)}}


def unchanged(key: str, kv: KeyValue | None) -> Json:
    """Holds while the key is as it was read, or as absent."""
    revision = 0 if kv is None else kv.mod_revision
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def under_lease(key: str, lease: int) -> Json:
    """Holds while the key hangs on this lease; 0: while it is absent."""
    return {"key": _text(key), "target": "LEASE", "result": "EQUAL", "lease": str(lease)}


class EtcdClient:
    """One of the members is asked; another, where that one cannot be reached.

    Each call raises RegistryUnavailableError, RegistryRefusedError.
    Cancellation: at once; what was sent may have been done.

    Args:
        user: name and password, where etcd wants to know who asks.
    """

    def __init__(self, http: httpx.AsyncClient, endpoints: Sequence[str], user: tuple[str, str] | None = None) -> None:
        self._http, self._endpoints, self._user = http, list(endpoints), user
        self._token = ""  # what etcd gave for name and password; it lasts for some minutes

    async def read(self, *asked: Json) -> list[Found]:
        """As of one moment."""
        answer = await self._call("/v3/kv/txn", {"success": asked})
        return [_found(response.get("response_range", {})) for response in answer.get("responses", [])]

    async def read_all(self, prefix: str, keep: Callable[[KeyValue], bool]) -> list[KeyValue]:
        """The keys that begin with `prefix` and are to be kept, in their order; read in pages, not as of one moment."""
        found: list[KeyValue] = []
        after = ""
        while True:
            (page,) = await self.read(get_below(prefix, PAGE, after=after))
            found += filter(keep, page.kvs)
            if len(page.kvs) < PAGE:
                return found
            after = page.kvs[-1].key

    async def write_if(self, conditions: Sequence[Json], *changes: Json) -> bool:
        """Make all changes if all conditions hold, else none.

        Raises:
            LeaseGoneError: a change hangs on a lease that is no more.
        """
        answer = await self._call("/v3/kv/txn", {"compare": conditions, "success": changes})
        return bool(answer.get("succeeded", False))

    async def grant(self, ttl: int) -> tuple[int, int]:
        """A new lease, and the seconds that it lasts: `ttl`, or the least that the server gives."""
        answer = await self._call("/v3/lease/grant", {"TTL": str(ttl), "ID": "0"})
        return int(answer["ID"]), int(answer["TTL"])

    async def keep_alive(self, lease: int) -> int:
        """Have it begin anew. Returns the seconds that it lasts. Raises LeaseGoneError."""
        answer = await self._call("/v3/lease/keepalive", {"ID": str(lease)})
        ttl = int(answer.get("result", {}).get("TTL", 0))
        if ttl <= 0:
            raise LeaseGoneError("the lease is gone")
        return ttl

    async def revoke(self, lease: int) -> None:
        """End it; what hangs on it is gone. Raises LeaseGoneError."""
        await self._call("/v3/lease/revoke", {"ID": str(lease)})

    async def _call(self, path: str, body: Json) -> Json:
        if self._user is None:
            return await self._send(path, body, "")
        used = self._token or await self._authenticate(self._user)
        try:
            return await self._send(path, body, used)
        except TokenGoneError:
            return await self._send(path, body, await self._authenticate(self._user))

    async def _authenticate(self, user: tuple[str, str]) -> str:
        answer = await self._send("/v3/auth/authenticate", {"name": user[0], "password": user[1]}, "")
        self._token = str(answer.get("token", ""))
        return self._token

    async def _send(self, path: str, body: Json, token: str) -> Json:
        headers = {"Authorization": token} if token else {}
        with trio.move_on_after(ANSWER_TIMEOUT):
            for _ in range(len(self._endpoints)):
                try:
                    answer = await self._http.post(self._endpoints[0] + path, json=body, headers=headers)
                except (httpx.ConnectError, httpx.ConnectTimeout):  # nothing was sent: another may do it
                    self._endpoints.append(self._endpoints.pop(0))
                except httpx.HTTPError as exc:
                    raise RegistryUnavailableError(f"etcd does not answer: {type(exc).__name__}") from exc
                else:
                    return _read(answer)
        raise RegistryUnavailableError("no member of the etcd cluster answers")


def _read(answer: httpx.Response) -> Json:
    try:
        body: Any = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        if answer.is_server_error:  # of a proxy before it
            raise RegistryUnavailableError(f"etcd does not answer: status {answer.status_code}")
        raise RegistryRefusedError(f"what answers with status {answer.status_code} is no etcd")
    fields = cast("dict[str, Any]", body)
    if answer.is_success:
        return fields
    message, code = str(fields.get("error", "")), fields.get("code")
    if code == NOT_FOUND and "lease" in message:
        raise LeaseGoneError(message)
    if code == UNAUTHENTICATED:
        raise TokenGoneError(f"etcd refuses: {message}")
    if code in LASTING_CODES:
        raise RegistryRefusedError(f"etcd refuses: {message}")
    raise RegistryUnavailableError(f"etcd does not answer: {message}")


def _found(response: Json) -> Found:
    kvs = tuple(map(_key_value, response.get("kvs", [])))
    return Found(kvs, int(response.get("count", 0)))


def _key_value(kv: Json) -> KeyValue:
    return KeyValue(
        key=b64decode(kv["key"]).decode(),
        value=b64decode(kv.get("value", "")),
        mod_revision=int(kv["mod_revision"]),
        lease=int(kv.get("lease", 0)),
    )


def _text(key: str) -> str:
    return b64encode(key.encode()).decode()
