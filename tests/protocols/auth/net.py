"""A router that answers handshakes, and a member with a session to it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from agentmesh.abc import Admission, Stream
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.identity import Identity
from agentmesh.protocols.auth import AUTH_ID, AuthPolicy, AuthStatistics, authenticate, protocol
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId, ProtocolId

EPOCH = 1_900_000_000.0
KEY = SigningKey.generate()
GATED_ID = ProtocolId("/test/gated/1.0.0")


def wall_clock() -> float:
    return EPOCH + trio.current_time()


def check(token: bytes, peer: PeerId) -> Credential:
    return verify(token, peer=peer, trusted=TrustedKeys(frozenset({KEY.public})), now=wall_clock())


def credential_of(peer: PeerId, *, key: SigningKey = KEY, role: str = ROLE_NODE, lasting: float = 1000.0) -> bytes:
    return mint(key, peer=peer, role=role, labels={}, expires_at=wall_clock() + lasting)


async def serve_gated(stream: Stream) -> None:
    await stream.send_all(b"welcome")


@attrs.define
class Pair:
    """A router that answers handshakes and a member with a session to it."""

    router: Host
    member: Host
    statistics: AuthStatistics
    banned: set[PeerId] = attrs.Factory(set[PeerId])

    async def authenticate(self, token: bytes | None = None, required_role: str | None = ROLE_ROUTER) -> Credential:
        async with await self.member.open_stream(self.router.peer, AUTH_ID) as stream:
            return await authenticate(
                stream,
                token=credential_of(self.member.peer) if token is None else token,
                verify=check,
                required_role=required_role,
            )

    async def knock(self) -> bytes | bytearray:
        """What the gated protocol says to the member."""
        async with await self.member.open_stream(self.router.peer, GATED_ID) as stream:
            return await stream.receive_some()

    def results(self) -> dict[str, int]:
        return {str(result): count for result, count in self.statistics.results.items() if count}


@asynccontextmanager
async def open_pair(own: Callable[[PeerId], bytes] | None = None) -> AsyncGenerator[Pair]:
    network, identity = MemoryNetwork(), Identity.generate()
    admissions, statistics, banned = AdmissionBook(wall_clock), AuthStatistics(), set[PeerId]()

    def admit(peer: PeerId, credential: Credential) -> None:
        admissions.admit(peer, Admission.MEMBER, credential.expires_at)

    policy = AuthPolicy(
        verify=check,
        own=lambda: own(identity.peer) if own else credential_of(identity.peer, role=ROLE_ROUTER),
        admit=admit,
        is_banned=banned.__contains__,
    )
    async with (
        open_host(
            identity=identity,
            transports=[network.transport("router")],
            protocols=[protocol(policy, statistics=statistics), Protocol(GATED_ID, serve_gated, Admission.MEMBER)],
            listen=[Address.parse("/memory/1")],
            admissions=admissions,
        ) as router,
        open_host(identity=Identity.generate(), transports=[network.transport("member")]) as member,
    ):
        await member.connect(router.peer, router.addresses)
        yield Pair(router, member, statistics, banned)


def foreign(me: PeerId) -> bytes:
    return credential_of(me, key=SigningKey.generate(), role=ROLE_ROUTER)


def expired(me: PeerId) -> bytes:
    return credential_of(me, role=ROLE_ROUTER, lasting=-10)


def anothers(me: PeerId) -> bytes:
    return credential_of(Identity.generate().peer, role=ROLE_ROUTER)


def garbage(me: PeerId) -> bytes:
    return b"biscuit"
