import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.router.retrying import MAX_RETRIES, RetryBudget, blames_connection
from agentmesh.protocols.pool import ACCEPTED, Code, OpenResult, Stage

RETRYABLE = OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True)


@pytest.mark.parametrize(
    ("result", "retries", "left"),
    [
        (OpenResult(Stage.POLICY, Code.FORBIDDEN, retryable=True), 0, 1.0),
        (OpenResult(Stage.PROTOCOL, Code.UNSUPPORTED_CAPABILITY, retryable=True), 0, 1.0),
        (OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED), 0, 1.0),
        (RETRYABLE, MAX_RETRIES, 1.0),
        (RETRYABLE, 0, 0.0),
    ],
)
def test_what_is_not_tried_again(result: OpenResult, retries: int, left: float) -> None:
    assert not RetryBudget().take(result, retries, left)


@given(st.integers(0, 2000))
def test_there_is_a_retry_for_ten_opens_and_a_few_more(opens: int) -> None:
    budget, taken = RetryBudget(), 0
    for _ in range(opens):
        budget.note_open()
        taken += sum(budget.take(RETRYABLE, retries, 1.0) for retries in range(MAX_RETRIES))
    assert taken <= 10 + opens / 10 + 1


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_whom_a_failure_blames(code: Code) -> None:
    for stage in Stage:
        assert blames_connection(OpenResult(stage, code)) == (stage in (Stage.QUEUE, Stage.RELAY))
    assert not blames_connection(ACCEPTED)
