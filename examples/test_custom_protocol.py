"""The property test of `custom_protocol`: pytest examples/test_custom_protocol.py"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.testing.strategies import peer_ids
from agentmesh.types import PeerId
from examples.custom_protocol import CHOICES, Ballot


@given(st.lists(st.tuples(peer_ids(), st.sampled_from(CHOICES))))
def test_every_voter_counts_once_and_the_last_vote_counts(votes: list[tuple[PeerId, bytes]]) -> None:
    ballot, model = Ballot(), dict[PeerId, bytes]()
    for voter, choice in votes:
        model[voter] = choice
        assert ballot.receive_vote(voter, choice) == list(model.values()).count(choice)
    assert ballot.tally.total() == len(model)


@given(peer_ids(), st.binary().filter(lambda choice: choice not in CHOICES))
def test_anything_else_is_the_peers_fault_and_does_not_count(voter: PeerId, choice: bytes) -> None:
    ballot = Ballot()
    with pytest.raises(RemoteProtocolError):
        ballot.receive_vote(voter, choice)
    assert not ballot.tally
