import json

from agentmesh.pool.registry import ConnectionLease
from agentmesh.pool.router.claims import Claim
from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.metadata import METADATA_TTL, MetadataBook
from agentmesh.protocols.pool import ConnEpoch, ErrorName, Hello, Item


def said(value: str, revision: int = 1, agent_id: str = "agent") -> Hello:
    return Hello(agent_id, revision=revision, items=(Item("os", "probe", value),))


def connection(instance_id: str, name: str) -> Connection:
    claim = Claim(agent_id="agent", instance_id=instance_id, connection_id=name, epoch=ConnEpoch(1), token_id="t")
    return Connection(claim, ConnEpoch(1), object(), 0.0)


def test_revisions_go_up() -> None:
    book = MetadataBook()
    assert book.take("agent", "i1", said("a", 2), 0.0).accepted
    again = book.take("agent", "i1", said("a", 2), 1.0)
    assert (again.accepted, again.idempotent) == (True, True)
    for hello, code in [
        (said("a", 1), ErrorName.STALE_REVISION),
        (said("b", 2), ErrorName.REVISION_CONFLICT),
        (said("b", 3, "other"), ErrorName.IDENTITY_MISMATCH),
    ]:
        taken = book.take("agent", "i1", hello, 2.0)
        assert (taken.accepted, [problem.code for problem in taken.problems]) == (False, [code])
    assert book.take("agent", "i1", said("b", 3), 3.0).accepted


def test_no_process_overwrites_another() -> None:
    book = MetadataBook()
    book.take("agent", "i1", said("one"), 0.0)
    book.take("agent", "i2", said("two"), 1.0)
    connections = [connection("i1", "c1"), connection("i1", "c2"), connection("i2", "c3")]
    view = book.view("agent", connections, connections, 2.0)
    assert [(one.instance_id, one.connection_count, one.items[0].value) for one in view.instances] == [
        ("i1", 2, "one"),
        ("i2", 1, "two"),
    ]
    assert view.items[0].value == "two"  # the freshest
    assert book.view("agent", connections, connections[:2], 2.0).items[0].value == "one"  # of those that are well
    assert book.view("agent", connections, [], 2.0).items[0].value == "two"


def test_processes_that_are_connected_elsewhere_are_shown_without_items() -> None:
    book = MetadataBook()
    book.take("agent", "i1", said("one"), 0.0)
    book.take("agent", "i2", said("two"), 9.0)
    connections = [connection("i1", "c1")]
    elsewhere = [
        ConnectionLease(
            agent_id="agent",
            instance_id=instance_id,
            connection_id=f"far-{instance_id}",
            server_node_id="n2",
            connection_epoch=ConnEpoch(1),
            capabilities=(),
            active_streams=0,
            health_score=health,
            expires_at=0.0,
            stats_age=0.0,
        )
        for instance_id, health in (("i1", 0), ("i2", 0), ("i3", 50))
    ]
    view = book.view("agent", connections, connections, 10.0, elsewhere)
    assert [
        (one.instance_id, one.connection_count, one.is_healthy, one.is_local, one.is_old) for one in view.instances
    ] == [
        ("i1", 2, True, True, False),
        ("i2", 1, False, False, True),
        ("i3", 1, True, False, True),
    ]
    assert [len(one.items) for one in view.instances] == [1, 0, 0]
    assert view.items[0].value == "one"  # of those that are here


def test_what_is_old_is_shown_as_old_and_what_is_not_there_is_empty() -> None:
    book = MetadataBook()
    book.take("agent", "i1", said("one"), 0.0)
    connections = [connection("i1", "c1"), connection("i2", "c2")]
    [first, second] = book.view("agent", connections, connections, METADATA_TTL).instances
    assert (first.is_old, second.is_old, second.items) == (True, True, ())
    book.forget("agent", "i1")
    assert book.view("agent", connections, connections, 0.0).items == ()
    assert json.loads(json.dumps(book.view("nobody", [], [], 0.0).to_json())) == {
        "agentId": "nobody",
        "items": [],
        "instances": [],
    }


def test_the_view_as_the_api_gives_it() -> None:
    book = MetadataBook()
    book.take("agent", "i1", said("linux"), 0.0)
    view = book.view("agent", [connection("i1", "c1")], [], 0.0).to_json()
    item = {"name": "os", "source": "probe", "value": "linux"}
    assert view == {
        "agentId": "agent",
        "items": [item],
        "instances": [
            {
                "instanceId": "i1",
                "connectionCount": 1,
                "healthy": False,
                "stale": False,
                "local": True,
                "items": [item],
            }
        ],
    }


def test_the_book_is_bounded() -> None:
    book = MetadataBook(max_instances=3)
    for n in range(10):
        book.take("agent", f"i{n}", said("x"), 0.0)
    assert len(book) == 3
