"""Whom a member lets in: over the auth protocol, and to its services."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Admission
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey, mint
from agentmesh.errors import CredentialError, RejectedError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.membership.gate import auth_policy, service_policy
from agentmesh.protocols import auth
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import open_host
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.types import Address
from tests.membership.plane import NODE_TOKEN, ROUTER_TOKEN, START, Plane, wall_clock


async def begun(plane: Plane, token: str = NODE_TOKEN) -> Membership:
    identity = Identity.generate()
    membership = Membership(
        identity, plane.client(identity), Enrollment(control_plane="http://cp", token=token), None, wall_clock
    )
    await membership.begin()
    return membership


@pytest.mark.parametrize(("token", "level"), [(NODE_TOKEN, Admission.MEMBER), (ROUTER_TOKEN, Admission.ROUTER)])
async def test_a_credential_opens_what_its_role_opens_until_it_expires(
    autojump_clock: MockClock, token: str, level: Admission
) -> None:
    plane, hub = Plane(ttl=600.0), MemoryHub()
    server, client = await begun(plane), await begun(plane, token)
    book = AdmissionBook(wall_clock)
    async with (
        open_host(
            identity=server.identity,
            transports=[MemoryTransport(hub)],
            protocols=[auth.protocol(auth_policy(server, book))],
            listen=[Address.parse("/memory/1")],
            admissions=book,
        ) as host,
        open_host(identity=client.identity, transports=[MemoryTransport(hub)]) as caller,
    ):
        await caller.connect(host.peer, host.addresses)
        assert book.level(caller.peer) == Admission.ANYONE
        async with await caller.open_stream(host.peer, auth.AUTH_ID) as stream:
            shown = await auth.authenticate(stream, token=client.token(), verify=client.verify)
        assert shown == server.credential
        assert book.level(caller.peer) == level
        await trio.sleep(601)
        assert book.level(caller.peer) == Admission.ANYONE
        async with await caller.open_stream(host.peer, auth.AUTH_ID) as stream:
            with pytest.raises(RejectedError):
                await auth.authenticate(stream, token=client.token(), verify=client.verify)


async def test_every_member_may_call_every_service_and_nobody_else(autojump_clock: MockClock) -> None:
    plane = Plane(ttl=600.0)
    provider, caller = await begun(plane), await begun(plane)
    authorize = service_policy(provider)
    authorize(caller.token(), caller.identity.peer, "http", "files")
    stranger = Identity.generate().peer
    foreign = mint(SigningKey.generate(), peer=stranger, role=ROLE_NODE, labels={}, expires_at=START + 600)
    for token, peer, reason in (
        (caller.token(), stranger, "wrong_peer"),
        (foreign, stranger, "untrusted"),
        (b"no token", stranger, "malformed"),
    ):
        with pytest.raises(CredentialError) as caught:
            authorize(token, peer, "http", "files")
        assert caught.value.reason == reason
    await trio.sleep(601)
    with pytest.raises(CredentialError) as caught:
        authorize(caller.token(), caller.identity.peer, "http", "files")
    assert caught.value.reason == "expired"


async def test_a_router_is_a_member_too(autojump_clock: MockClock) -> None:
    plane = Plane()
    provider, router = await begun(plane), await begun(plane, ROUTER_TOKEN)
    assert router.credential.role == ROLE_ROUTER
    service_policy(provider)(router.token(), router.identity.peer, "http", "files")
