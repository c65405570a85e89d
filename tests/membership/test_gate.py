"""Whom a member lets in: over the auth protocol, and to its services."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Admission
from agentmesh.authorization import Call
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey, mint
from agentmesh.errors import CredentialError, RejectedError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.membership.gate import auth_policy, service_policy
from agentmesh.membership.rulebook import Rulebook
from agentmesh.protocols import auth
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.services import Authorize
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


GRANTS = (
    'granted_service_exact("reader", "http", "files") <- role("reader")',
    'granted_target_all_facts("reader") <- role("reader")',
)
FILES = Call("http", "files", "GET", "/")


async def known(membership: Membership, nursery: trio.Nursery) -> Authorize:
    """The service policy of a member, which has read the rules."""
    rulebook = Rulebook(lambda: membership.client.rules(membership.token()), Random(1))
    nursery.start_soon(rulebook.run)
    await rulebook.wait_known()
    return service_policy(membership, rulebook)


def denial(authorize: Authorize, caller: Membership, call: Call = FILES) -> str:
    """Why a call is denied; "" when it is not."""
    try:
        authorize(caller.token(), caller.identity.peer, call)
    except CredentialError as exc:
        return exc.reason
    return ""


async def test_a_call_is_allowed_by_the_policy_and_by_nothing_else(autojump_clock: MockClock) -> None:
    plane = Plane()
    provider, alice, mallory = [await begun(plane) for _ in range(3)]
    plane.rules = (*GRANTS, f'role("reader") <- node("{alice.identity.peer}")')
    async with open_background() as nursery:
        authorize = await known(provider, nursery)
        assert denial(authorize, alice) == ""
        assert denial(authorize, mallory) == "denied"
        assert denial(authorize, alice, Call("http", "other", "GET", "/")) == "denied"
        assert denial(authorize, alice, Call("mcp", "files", "GET", "/")) == "denied"


async def test_without_a_policy_nobody_may_call_anything(autojump_clock: MockClock) -> None:
    plane = Plane(rules=())
    provider, caller = await begun(plane), await begun(plane)
    async with open_background() as nursery:
        assert denial(await known(provider, nursery), caller) == "denied"


async def test_only_a_credential_that_is_good_now_is_looked_at(autojump_clock: MockClock) -> None:
    plane = Plane(ttl=600.0)
    provider, caller = await begun(plane), await begun(plane)
    async with open_background() as nursery:
        authorize = await known(provider, nursery)
        authorize(caller.token(), caller.identity.peer, FILES)
        stranger = Identity.generate().peer
        foreign = mint(SigningKey.generate(), peer=stranger, role=ROLE_NODE, labels={}, expires_at=START + 600)
        for token, peer, reason in (
            (caller.token(), stranger, "wrong_peer"),
            (foreign, stranger, "untrusted"),
            (b"no token", stranger, "malformed"),
        ):
            with pytest.raises(CredentialError) as caught:
                authorize(token, peer, FILES)
            assert caught.value.reason == reason
        await trio.sleep(601)
        assert denial(authorize, caller) == "expired"


async def test_a_router_calls_what_its_role_grants(autojump_clock: MockClock) -> None:
    plane = Plane()
    provider, router = await begun(plane), await begun(plane, ROUTER_TOKEN)
    assert router.credential.role == ROLE_ROUTER
    async with open_background() as nursery:
        assert denial(await known(provider, nursery), router) == ""
        plane.rules = GRANTS
        assert denial(await known(provider, nursery), router) == "denied"
