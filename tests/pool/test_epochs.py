"""One epoch from a hello to an operator's screen, whatever carries it; the stores are in tests/pool/registry."""

import json

from hypothesis import given, settings

from agentmesh.pool.registry import MemoryRegistry, NewConnection, Registered
from agentmesh.pool.router.claims import Claim, ConnectionKey, claim_of
from agentmesh.pool.router.table import Place, PoolTable, Registration
from agentmesh.pool.router.views import Moment, agent_view
from agentmesh.protocols.pool import RELAY_ID, Ack, CloseRequest, ConnEpoch, Hello, Open
from agentmesh.protocols.pool.close_wire import decode_close, encode_close
from agentmesh.protocols.pool.open_wire import decode_open, encode_open
from agentmesh.protocols.pool.wire import Kind, decode_message, encode_message
from agentmesh.testing.clock import run
from tests.protocols.pool.values import EPOCHS

DOUBLES = 2**53  # above it a reader to whom numbers are doubles reads another


def read_as_doubles(data: bytes) -> bytes:
    """As a browser passes it on: numbers are not what they were, text is."""
    return json.dumps(json.loads(data, parse_int=lambda text: int(float(text)))).encode()


async def registered(epoch: int) -> int:
    registry = MemoryRegistry(clock=lambda: 0.0)
    new = NewConnection(agent_id="agent", connection_id="c1", instance_id="i", server_node_id="n")
    outcome = await registry.register_connection(new, 90.0, ConnEpoch(epoch))
    assert isinstance(outcome, Registered)
    [lease] = await registry.list_active_by_agent("agent")
    assert lease.connection_epoch == outcome.fence.epoch
    return lease.connection_epoch


@given(EPOCHS.filter(bool))
@settings(deadline=None)
def test_an_epoch_is_the_same_all_the_way(epoch: int) -> None:
    hello = decode_message(encode_message(Hello("agent", connection_id="c1", epoch=ConnEpoch(epoch))), Kind.HELLO)
    assert isinstance(hello, Hello)
    claim = claim_of(hello, bound_to="agent", token_id="t", peer="p")
    assert isinstance(claim, Claim)
    table = PoolTable("n")
    place = table.begin(claim, 0.0)
    assert isinstance(place, Place)
    given_out = run(registered, place.claim.epoch)
    registration = table.complete(place, ConnEpoch(given_out), object(), 0.0)
    assert isinstance(registration, Registration)
    key = registration.connection.key

    ack = decode_message(read_as_doubles(encode_message(Ack("agent", epoch=key.epoch))), Kind.ACK)
    assert isinstance(ack, Ack)
    relayed = Open("agent", "tcp", "h", 1, target_connection_id="c1", target_connection_epoch=ack.epoch)
    opened = decode_open(read_as_doubles(encode_open(relayed)), RELAY_ID)
    closed = decode_close(read_as_doubles(encode_close(CloseRequest("agent", "c1", opened.target_connection_epoch))))
    [shown] = json.loads(read_as_doubles(json.dumps(agent_view(table, "agent", Moment(0.0, 0.0))).encode()))[
        "connections"
    ]
    assert int(shown["connectionEpochDecimal"]) == closed.connection_epoch == key.epoch == epoch
    assert epoch > DOUBLES or shown["connectionEpoch"] == epoch
    assert key == ConnectionKey("agent", "c1", closed.connection_epoch)
