import pytest

from agentmesh.pool.router.claims import Claim, Reason, Refusal, claim_of
from agentmesh.protocols.pool import ConnEpoch, ErrorName, Hello

PEER = "12D3KooWpeer"


def claimed(hello: Hello) -> Claim:
    claim = claim_of(hello, bound_to="agent", token_id="t1", peer=PEER)
    assert isinstance(claim, Claim)
    return claim


NAMES: dict[
    tuple[int, ...], tuple[str, str]
] = {  # what a hello has of instance, connection and node -> what that makes of instance and connection
    (1, 1, 1): ("instance", "connection"),
    (1, 1, 0): ("instance", "connection"),
    (1, 0, 1): ("instance", "legacy-node"),
    (1, 0, 0): ("instance", "legacy-instance"),
    (0, 1, 1): ("node", "connection"),
    (0, 1, 0): (PEER, "connection"),
    (0, 0, 1): ("node", "legacy-node"),
    (0, 0, 0): (PEER, f"legacy-{PEER}"),
}


@pytest.mark.parametrize("present", list(NAMES))
def test_what_a_legacy_hello_lacks_is_made_up_the_same_each_time(present: tuple[int, ...]) -> None:
    instance, connection, node = (
        name * there for name, there in zip(("instance", "connection", "node"), present, strict=True)
    )
    claims = [claimed(Hello("agent", instance, connection, node, ConnEpoch(epoch))) for epoch in (1, 2)]
    assert [(claim.instance_id, claim.connection_id) for claim in claims] == [NAMES[present]] * 2
    assert [claim.epoch for claim in claims] == [1, 2]


def test_two_legacy_processes_of_one_agent_do_not_fight() -> None:
    first, second = claimed(Hello("agent", node_id="a")), claimed(Hello("agent", node_id="b"))
    assert first.connection_id != second.connection_id


@pytest.mark.parametrize("bound_to", ["other", "Agent", "", None])
def test_a_credential_is_for_one_agent(bound_to: str | None) -> None:
    refusal = claim_of(Hello("agent"), bound_to=bound_to, token_id="t1", peer=PEER)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.IDENTITY_MISMATCH
    assert refusal.problem.code == ErrorName.FORBIDDEN


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_says_which_limit_it_was(reason: Reason) -> None:
    problem = Refusal(reason).problem
    assert problem.name == reason
    assert (problem.code == ErrorName.RESOURCE_EXHAUSTED) == (
        reason not in (Reason.STALE_EPOCH, Reason.IDENTITY_MISMATCH)
    )
