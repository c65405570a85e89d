import itertools

import attrs
import pytest

from agentmesh.errors import LocalProtocolError
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import DRAIN_TIMEOUT, MAX_REDIALS
from agentmesh.pool.agent.dials import MAX_RETRY_AFTER, TRANSITIONS, Failure, Input, Slot, State
from agentmesh.pool.agent.orders import Close, CloseReason, Dial, Drain
from agentmesh.pool.agent.scaling import Decision, Reason, Report
from agentmesh.protocols.pool import Ack, DrainReason
from tests.pool.agent.driving import NO_POOL, POOL, World


def busy(streams: int) -> Report:
    return Report(active_streams=streams, rtt=0.05)


def grown(count: int = 3) -> World:
    """So many connections, the first two with streams."""
    world = World(ConnectionsConfig(min=count, max=8)).start()
    world.controller.reload(ConnectionsConfig(min=1, max=8), world.now)
    assert world.controller.count == count
    return world


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))
    with pytest.raises(LocalProtocolError):
        Slot(1).step(Input.JOIN)


# ── dialling ──


def test_the_second_dial_waits_for_the_first_ack() -> None:
    world = World(ConnectionsConfig(min=3, max=8), ack=None).start()
    world.run(100.0)
    assert len(world.of(Dial)) == 1
    world.controller.joined("c1", POOL, world.now)
    world.obey()
    assert len(world.of(Dial)) == 2  # which may come to another router
    world.controller.joined("c2", POOL, world.now)
    world.obey()
    assert len(world.of(Dial)) == 3


@pytest.mark.parametrize("ack", [NO_POOL, attrs.evolve(POOL, connection_pool_supported=False)])
def test_a_router_without_pools_gets_one_connection(ack: Ack) -> None:
    world = World(ConnectionsConfig(min=3, max=8), ack=ack, load=lambda _: busy(100)).start()
    world.run(600.0)
    assert (len(world.of(Dial)), world.controller.count) == (1, 1)
    assert world.last.reason is Reason.ACK_MISSING


def test_a_mixed_fleet_keeps_what_it_has_and_is_not_flooded() -> None:
    world = World(load=lambda _: busy(100)).start()
    world.ack = NO_POOL
    world.run(600.0)
    assert (world.controller.active, len(world.of(Dial))) == (("c1", "c2"), 2)
    assert world.last.reason is Reason.UNSUPPORTED
    world.controller.lost("c2", world.now)
    world.ack = POOL
    world.run(300.0)
    assert world.controller.count == 8


@pytest.mark.parametrize("least", [1, 4])
def test_an_outage_is_dialled_into_ever_more_slowly(least: int) -> None:
    world = World(ConnectionsConfig(min=least, max=8)).start()
    for connection_id in world.controller.active:
        world.controller.lost(connection_id, 0.0)
    world.ack = None
    before = len(world.of(Dial))
    while world.now < 600.0:
        world.run(1.0)
        for order in world.of(Dial):
            assert isinstance(order, Dial)
            world.controller.dial_failed(order.connection_id, Failure.NETWORK, world.now)
    assert 600 / 31 < len(world.of(Dial)) - before < 8 + 600 / 16
    ids = [order.connection_id for order in world.of(Dial) if isinstance(order, Dial)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("lasted", "seconds"), [(31.0, 1.0), (5.0, 30.0)])
def test_a_connection_that_lasted_ends_the_backing_off(lasted: float, seconds: float) -> None:
    world = World(ConnectionsConfig(), chance=lambda: 1.0, ack=None).start()
    for n in range(1, 7):
        world.controller.dial_failed(f"c{n}", Failure.NETWORK, world.now)
        world.run(31.0)
    world.controller.joined("c7", POOL, world.now)
    world.run(lasted)
    world.controller.lost("c7", world.now)
    world.run(seconds - 0.1)
    assert len(world.of(Dial)) == 7
    world.run(0.2)
    assert len(world.of(Dial)) == 8


def test_a_router_that_was_refused_is_not_asked_at_once() -> None:
    world = World(ConnectionsConfig(), ack=None).start()
    world.controller.dial_failed("c1", Failure.REFUSED, 0.0, retry_after=20.0)
    world.run(19.0)
    assert len(world.of(Dial)) == 1
    world.run(21.0)
    assert len(world.of(Dial)) == 2
    world.controller.dial_failed("c2", Failure.REFUSED, world.now, retry_after=1e9)
    world.run(2 * MAX_RETRY_AFTER)
    assert len(world.of(Dial)) == 3
    world.controller.dial_failed("c3", Failure.AUTH, world.now)
    world.run(30.0)
    assert len(world.of(Dial)) == 3


def test_a_place_that_the_router_has_no_room_for_is_given_up() -> None:
    world = World(load=lambda _: busy(100)).start()
    world.ack = None
    world.run(20.0)
    assert world.controller.count == 2
    world.controller.dial_failed("c2", Failure.REFUSED, world.now, retry_after=60.0)
    assert world.controller.count == 1
    world.run(70.0)
    assert len(world.of(Dial)) == 2


# ── more ──


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (Report(active_streams=16), Reason.HIGH_STREAMS),
        (Report(queue_pressure=0.8), Reason.QUEUE_PRESSURE),
        (Report(queue_wait=0.1), Reason.SEND_LATENCY),
    ],
)
def test_what_asks_for_another_connection(report: Report, reason: Reason) -> None:
    world = World(load=lambda name: report if name == "c1" else Report()).start()
    world.run(10.0)
    assert (world.last.decision, world.last.reason, world.last.wanted) == (Decision.REJECTED, Reason.WINDOW, reason)
    world.run(10.0)
    assert (world.last.decision, world.last.reason, world.controller.count) == (Decision.SCALE_UP, reason, 2)
    assert world.last.seen[0].report == report


def test_round_trips_that_have_grown_long_ask_for_another_and_a_far_agent_does_not() -> None:
    rtt = [0.6]
    world = World(load=lambda _: Report(rtt=rtt[0])).start()
    world.run(300.0)
    assert world.controller.count == 1
    rtt[0] = 0.9
    world.run(20.0)
    assert (world.last.decision, world.last.reason) == (Decision.SCALE_UP, Reason.SEND_LATENCY)


def test_errors_ask_for_another_only_where_others_have_none() -> None:
    errors = {"c1"}
    world = World(
        ConnectionsConfig(min=2, max=8),
        load=lambda name: Report(active_streams=3, transport_errors=int(name in errors)),
    ).start()
    world.run(20.0)
    assert (world.last.decision, world.last.reason) == (Decision.SCALE_UP, Reason.CONTENTION)
    world = World(ConnectionsConfig(min=2, max=8), load=lambda _: Report(active_streams=3, transport_errors=1)).start()
    world.run(300.0)
    assert world.controller.count == 2  # all of them: the way is broken


def test_errors_of_a_connection_that_carried_nothing_ask_for_nothing() -> None:
    world = World(ConnectionsConfig(min=2, max=8), load=lambda name: Report(transport_errors=int(name == "c1"))).start()
    world.run(300.0)
    assert world.controller.count == 2


def test_a_slow_target_asks_for_nothing() -> None:
    world = World(load=lambda _: Report(active_streams=5, open_failures=9, target_wait=30.0, rtt=0.02)).start()
    world.run(3600.0)
    assert world.controller.count == 1
    assert world.made(Decision.SCALE_UP) == []


def test_it_goes_no_further_than_it_may() -> None:
    world = World(ConnectionsConfig(max=8), load=lambda _: busy(100)).start()
    world.ack = attrs.evolve(POOL, max_connections_per_agent=3)
    world.controller.acknowledged("c1", world.ack, 0.0)
    world.run(600.0)
    assert (world.controller.count, world.last.reason, world.last.ceiling) == (3, Reason.AT_MAX, 3)


def test_a_router_that_takes_fewer_from_now_on_is_obeyed() -> None:
    world = grown(4)
    world.load = lambda name: busy(int(name[1:]))
    world.run(1.0)
    for name in world.controller.active:
        world.controller.report(name, world.load(name))
    world.controller.acknowledged("c3", attrs.evolve(POOL, max_connections_per_agent=2), world.now)
    world.obey()
    assert world.controller.active == ("c3", "c4")
    assert [order for order in world.of(Drain) if isinstance(order, Drain) and order.connection_id == "c1"]


def test_what_does_not_help_is_waited_for_longer() -> None:
    """A saturated uplink: the wait stays, however many connections there are."""
    world = World(load=lambda _: Report(queue_wait=0.5)).start()
    world.run(2600.0)
    dials = [at for at, order in world.orders if isinstance(order, Dial)]
    gaps = [after - before for before, after in itertools.pairwise(dials)]
    assert gaps == [20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0]
    assert any(record.reason is Reason.NO_BENEFIT for record in world.records)


def test_what_did_not_help_is_forgotten_when_the_load_is_over() -> None:
    wait = [0.5]
    world = World(load=lambda _: Report(queue_wait=wait[0])).start()
    world.run(150.0)
    assert world.controller.scaler.benefit.patience > 1
    wait[0] = 0.0
    world.run(600.0)
    assert (world.controller.count, world.controller.scaler.benefit.patience) == (1, 1)


def test_what_helps_is_not_held_against_the_next() -> None:
    world = World(load=lambda _: Report(queue_wait=0.8 / world.controller.count)).start()
    world.run(200.0)
    assert world.controller.count == 8
    assert world.controller.scaler.benefit.patience == 1


# ── fewer ──


def test_an_idle_connection_is_taken_away_when_it_was_idle_for_long_enough() -> None:
    world = grown(3)
    world.load = lambda name: busy({"c1": 4, "c2": 4}.get(name, 0))
    world.run(20.0)
    assert (world.last.decision, world.last.reason) == (Decision.REJECTED, Reason.WINDOW)
    world.run(10.0)
    assert (world.last.decision, world.last.reason) == (Decision.SCALE_DOWN, Reason.LOW_LOAD)
    assert world.of(Drain) == [Drain("c3", DrainReason.SCALE_DOWN, DRAIN_TIMEOUT)]
    assert world.closes == [("c3", CloseReason.DRAINED)]
    world.run(600.0)
    assert world.controller.active == ("c1", "c2")


def test_the_least_loaded_goes_and_of_equals_the_newest() -> None:
    world = grown(8)
    world.load = lambda name: busy(1 if name in ("c2", "c7") else 2)
    world.run(30.0)
    assert [order.connection_id for order in world.of(Drain) if isinstance(order, Drain)] == ["c7"]


def test_two_changes_are_a_cooldown_apart() -> None:
    world = grown(5)
    world.run(600.0)
    downs = world.made(Decision.SCALE_DOWN)
    assert world.controller.count == 1
    assert all(after - before >= 30.0 for before, after in itertools.pairwise(downs))
    assert any(record.reason is Reason.COOLDOWN for record in world.records)


def test_nothing_is_taken_away_that_would_be_wanted_again() -> None:
    world = grown(2)
    world.load = lambda name: busy(14 if name == "c1" else 1)
    world.run(600.0)
    assert (world.controller.count, world.last.reason) == (2, Reason.PROJECTION)


def test_at_the_most_with_long_round_trips_it_does_not_flap() -> None:
    """High and low at once, as it looks: few streams, and a wait."""
    world = World(ConnectionsConfig(max=2), load=lambda _: Report(active_streams=1, queue_wait=0.6)).start()
    world.run(3600.0)
    assert (world.controller.count, world.made(Decision.SCALE_DOWN)) == (2, [])
    assert world.last.reason is Reason.AT_MAX


def test_what_is_in_demand_is_not_idle_however_few_its_streams() -> None:
    """The evaluations in which it was not needed are counted from when the demand has ended."""
    wait = [0.6]
    world = World(ConnectionsConfig(max=2), load=lambda _: Report(active_streams=1, queue_wait=wait[0])).start()
    world.run(200.0)
    wait[0] = 0.0
    world.run(10.0)
    assert (world.last.decision, world.last.reason) == (Decision.REJECTED, Reason.WINDOW)
    world.run(20.0)
    assert world.last.decision is Decision.SCALE_DOWN


def test_a_square_wave_runs_out_of_changes() -> None:
    world = World(ConnectionsConfig(max=2, cooldown=0.0))
    world.load = lambda _: busy(16 if world.now % 100 < 50 else 0)
    world.start().run(600.0)
    changes = [
        record.decision for record in world.records if record.decision in (Decision.SCALE_UP, Decision.SCALE_DOWN)
    ]
    assert sum(before is not after for before, after in itertools.pairwise(changes)) <= 4
    assert world.controller.scaler.flaps.is_frozen(world.now)


# ── the end of a connection ──


def test_a_connection_that_drains_is_closed_when_its_streams_are_over_or_out_of_time() -> None:
    world = grown(2)
    world.load = lambda name: busy(2)
    world.run(30.0)
    [drain] = world.of(Drain)
    assert isinstance(drain, Drain)
    assert world.closes == []
    world.controller.report(drain.connection_id, busy(0))  # is not listened to any more
    world.run(DRAIN_TIMEOUT)
    assert world.closes == [(drain.connection_id, CloseReason.DRAIN_TIMEOUT)]
    world.controller.drained(drain.connection_id, world.now)
    world.obey()
    assert len(world.closes) == 1


def test_what_comes_late_raises_no_dead() -> None:
    world = grown(2)
    world.controller.lost("c1", 0.0)
    world.controller.report("c1", busy(100))
    world.controller.lost("c1", 0.0)
    world.controller.joined("c1", POOL, 0.0)
    world.controller.dial_failed("c1", Failure.NETWORK, 0.0)
    world.controller.goaway("c1", DrainReason.SERVER_SHUTDOWN, 0.0, 1.0, 0.0)
    world.controller.drained("c1", 0.0)
    world.controller.acknowledged("c1", NO_POOL, 0.0)
    assert (world.controller.active, world.controller.count) == (("c2",), 2)
    world.run(60.0)
    assert world.last.decision is not Decision.SCALE_UP


def test_a_router_that_stops_is_left_only_when_another_is_there() -> None:
    world = World(ConnectionsConfig()).start()
    world.controller.goaway("c1", DrainReason.SERVER_SHUTDOWN, 0.0, 30.0, 0.0)
    world.obey()
    assert (world.controller.active, world.closes) == (("c2",), [])
    world.run(30.0)
    assert world.closes == [("c1", CloseReason.DRAIN_TIMEOUT)]


def test_a_router_says_when_it_wants_to_see_us_again() -> None:
    world = World(ConnectionsConfig(), chance=lambda: 0.5).start()
    world.controller.goaway("c1", DrainReason.SERVER_SHUTDOWN, 0.0, 30.0, 10.0)
    world.run(14.0)
    assert len(world.of(Dial)) == 1
    world.run(1.0)
    assert len(world.of(Dial)) == 2


def test_what_an_operator_closes_stays_closed_but_for_the_least() -> None:
    world = grown(3)
    for _ in range(2):
        world.controller.goaway(world.controller.active[-1], DrainReason.ADMIN_CLOSE, 0.0, 30.0, 0.0)
        world.obey()
    assert world.controller.count == 1
    world.controller.goaway(world.controller.active[-1], DrainReason.ADMIN_CLOSE, 0.0, 30.0, 0.0)
    world.obey()
    assert (world.controller.count, len(world.of(Dial))) == (1, 4)


def test_an_agent_that_stops_drains_everything_and_dials_nothing() -> None:
    world = grown(2)
    world.load = lambda _: busy(1)
    world.ack = None
    world.controller.lost("c1", 0.0)
    world.run(5.0)
    world.controller.stop(world.now)
    world.obey()
    assert world.of(Drain) == [Drain("c2", DrainReason.AGENT_SHUTDOWN, 30.0)]
    assert world.closes == [("c3", CloseReason.STOPPED)]
    world.controller.goaway("c2", DrainReason.SERVER_SHUTDOWN, world.now, 30.0, 0.0)
    world.run(600.0)
    assert world.of(Close)[-1] == Close("c2", CloseReason.DRAIN_TIMEOUT)
    assert (world.controller.count, len(world.of(Dial))) == (0, 3)


# ── spread ──


def test_a_second_router_is_looked_for_a_few_times() -> None:
    world = World(ConnectionsConfig(min=2, max=8), ack=attrs.evolve(POOL, server_node_id="n1")).start()
    assert (world.controller.count, len(world.of(Dial))) == (2, 2 + MAX_REDIALS)
    world.controller.reload(ConnectionsConfig(min=3, max=8), 0.0)
    world.obey()
    assert len(world.of(Dial)) == 3 + MAX_REDIALS  # there is none, as it seems


def test_a_second_router_that_is_found_is_kept() -> None:
    world = World(ConnectionsConfig(min=2, max=8), ack=None).start()
    for n, node in enumerate(["n1", "n1", "n1", "n2"], 1):
        world.controller.joined(f"c{n}", attrs.evolve(POOL, server_node_id=node), 0.0)
        world.obey()
    assert world.controller.active == ("c1", "c4")
    assert world.closes == [("c2", CloseReason.DRAINED), ("c3", CloseReason.DRAINED)]
