"""A proposal and its answer, whole or in pieces, right or wrong: it judges as the machine of multistream does."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RejectedError, RemoteProtocolError
from agentmesh.runtime.multistream import GREETING, Proposer, encode_message, opening_of
from agentmesh.runtime.proposal import Proposal

NAME = "/echo/1.0.0"
ANSWERS = st.sampled_from([opening_of(NAME), GREETING, GREETING + encode_message("na"), encode_message("/x"), b"\x00"])


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(edges)]


def heard_by_machine(parts: list[bytes]) -> bytes | str | None:
    machine = Proposer([NAME])
    heard = b""
    try:
        for part in parts:
            if machine.agreed is not None:
                heard += part
            elif machine.receive_data(part) is not None:
                heard = machine.trailing()
    except (RejectedError, RemoteProtocolError) as exc:
        return type(exc).__name__
    return heard if machine.agreed is not None else None


def heard_by_proposal(parts: list[bytes]) -> bytes | str | None:
    proposal = Proposal(NAME)
    heard: bytes | None = None
    try:
        for part in parts:
            heard = proposal.receive_data(part) if heard is None else heard + part
    except (RejectedError, RemoteProtocolError) as exc:
        return type(exc).__name__
    return heard


@given(ANSWERS, st.binary(max_size=30), st.lists(st.integers(1, 70), max_size=5))
def test_it_judges_as_the_machine_does(answer: bytes, behind: bytes, cuts: list[int]) -> None:
    parts = pieces(answer + behind, cuts)
    assert heard_by_proposal(parts) == heard_by_machine(parts)


def test_what_comes_behind_an_answer_is_the_protocols() -> None:
    assert Proposal(NAME).receive_data(opening_of(NAME) + b"data") == b"data"


def test_a_refusal_that_begins_as_the_right_answer_does() -> None:
    proposal = Proposal(NAME)
    assert proposal.receive_data(GREETING) is None
    with pytest.raises(RejectedError):
        proposal.receive_data(encode_message("na"))
