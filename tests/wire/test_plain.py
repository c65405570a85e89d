"""Messages as plain values: what is written reads back, and what is not understood is refused by name."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import betterproto2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    DirectoryRecord,
    EnrollmentStatus,
    HttpGrant,
    KeysResponse,
    PolicyConfig,
    PolicyRole,
    RouterInfo,
    RouterLeaseRequest,
    RouterLeaseResponse,
)
from agentmesh.wire.plain import Field, Kind, fields_of, from_plain, names_of, to_plain

Message = type[betterproto2.Message]
KINDS: list[Message] = [
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    KeysResponse,
    PolicyConfig,
    RouterLeaseRequest,
]
FROM, TO = datetime(1970, 1, 1), datetime(9000, 1, 1)


def values(field: Field) -> st.SearchStrategy[Any]:
    one: dict[Kind, st.SearchStrategy[Any]] = {
        Kind.TEXT: st.text(max_size=9),
        Kind.BYTES: st.binary(max_size=9),
        Kind.FLAG: st.booleans(),
        Kind.NUMBER: st.integers(*field.range),
        Kind.CHOICE: st.sampled_from(EnrollmentStatus),
        Kind.MESSAGE: st.nothing(),
        Kind.INSTANT: st.datetimes(FROM, TO, timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=5000)),
        Kind.DURATION: st.timedeltas(timedelta(days=-9), timedelta(days=9)),
    }
    if field.map:
        return st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
    inner = messages(field.of) if field.kind is Kind.MESSAGE and field.of else one[field.kind]
    return st.lists(inner, max_size=3) if field.repeated else inner


def messages(kind: type[betterproto2.Message]) -> st.SearchStrategy[betterproto2.Message]:
    return st.builds(kind, **{name: values(field) for name, field in fields_of(kind).items()})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_written_reads_back(data: st.DataObject) -> None:
    kind: Message = data.draw(st.sampled_from(KINDS))
    message = data.draw(messages(kind))
    written = json.loads(json.dumps(to_plain(message)))
    assert from_plain(type(message), written) == message


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_anything_else_is_a_protocol_error(data: st.DataObject) -> None:
    kind: Message = data.draw(st.sampled_from(KINDS))
    sent = data.draw(st.dictionaries(st.sampled_from(list(fields_of(kind))), plain, max_size=3) | plain)
    try:
        message = from_plain(kind, sent)
    except RemoteProtocolError:
        return
    assert from_plain(kind, to_plain(message)) == message


def test_the_spelling() -> None:
    lease = RouterLeaseRequest(
        peer_id="p", addresses=["a"], biscuit=b"\xfb\xff", ttl=timedelta(seconds=1.5), connections=7
    )
    assert to_plain(lease) == {"peer_id": "p", "addresses": ["a"], "biscuit": "+/8=", "ttl": "1.5s", "connections": 7}
    answer = RouterLeaseResponse(success=True, expire_time=datetime(2027, 1, 15, 8, tzinfo=UTC))
    assert to_plain(answer) == {"success": True, "expire_time": "2027-01-15T08:00:00.000Z"}
    assert to_plain(BootstrapEnrollResponse()) == {"status": "ENROLLMENT_STATUS_UNSPECIFIED"}
    info = ControlPlaneInfoResponse(routers=[RouterInfo(peer_id="p", labels={"site": "a"})])
    assert to_plain(info) == {"routers": [{"peer_id": "p", "labels": {"site": "a"}}]}


def test_other_spellings_are_taken() -> None:
    lease = from_plain(RouterLeaseRequest, {"biscuit": "-_8", "connections": "7", "ttl": "0s", "peer_id": None})
    assert lease == RouterLeaseRequest(biscuit=b"\xfb\xff", connections=7, ttl=timedelta())
    answer = from_plain(RouterLeaseResponse, {"expire_time": "2027-01-15T09:00:00+01:00"})
    assert answer.expire_time == datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert names_of(EnrollmentStatus)["ENROLLMENT_STATUS_PENDING"] is EnrollmentStatus.PENDING


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (PolicyConfig, [], "an object is needed"),
        (PolicyConfig, {"role": []}, "there is no field 'role'; the fields are roles, bindings"),
        (
            PolicyConfig,
            {"roles": [{"name": "a"}, {"nam": "b"}]},
            "roles[1]: there is no field 'nam'; the fields are name",
        ),
        (PolicyConfig, {"roles": {}}, "roles: a list is needed"),
        (PolicyConfig, {"roles": [{"http": [{"paths": [5]}]}]}, "roles[0].http[0].paths[0]: a text is needed"),
        (PolicyRole, {"name": "\ud800"}, "name: this is no Unicode text"),
        (HttpGrant, {"service": True}, "service: a text is needed"),
        (RouterLeaseRequest, {"connections": 1.0}, "connections: a whole number is needed"),
        (RouterLeaseRequest, {"connections": True}, "connections: a whole number is needed"),
        (RouterLeaseRequest, {"connections": 2**63}, "connections: the number is out of range"),
        (RouterLeaseRequest, {"connections": "9" * 30}, "connections: a whole number is needed"),
        (RouterLeaseRequest, {"biscuit": "§"}, "biscuit: base64 is needed"),
        (RouterLeaseRequest, {"biscuit": "a"}, "biscuit: base64 is needed"),
        (RouterLeaseRequest, {"ttl": 5}, "ttl: a text is needed"),
        (RouterLeaseRequest, {"ttl": "5m"}, 'ttl: a duration as "30s" is needed'),
        (RouterLeaseResponse, {"success": 1}, "success: true or false is needed"),
        (RouterLeaseResponse, {"expire_time": "soon"}, "expire_time: an instant as 2027"),
        (RouterLeaseResponse, {"expire_time": "2027-01-15T08:00:00"}, "expire_time: an instant as 2027"),
        (BootstrapEnrollResponse, {"status": 1}, "status: one of ENROLLMENT_STATUS_UNSPECIFIED, ENROLLMENT"),
        (RouterInfo, {"labels": []}, "labels: an object is needed"),
        (RouterInfo, {"labels": {"a": 5}}, "labels: a text is needed"),
        (RouterInfo, {"labels": {"\ud800": "a"}}, "labels: this is no Unicode text"),
        (RouterInfo, {"label2.x": "a"}, "there is no field 'label2.x'; the fields are peer_id"),
        (RouterInfo, {"a" * 33: "a"}, "there is a field that has no name of ours; the fields are peer_id"),
        (RouterInfo, {"mesh-bt-0123": "a"}, "there is a field that has no name of ours; the fields are peer_id"),
        (DirectoryRecord, {"sequence": -1}, "sequence: the number is out of range"),
    ],
)
def test_faults_are_named(kind: type[betterproto2.Message], value: object, text: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        from_plain(kind, value)
    assert str(caught.value).startswith(text)
