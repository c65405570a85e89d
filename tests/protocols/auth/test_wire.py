import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.auth.wire import (
    MAX_ERROR_CHARS,
    Answer,
    decode_answer,
    decode_frame_message,
    encode_answer,
    encode_frame_message,
)
from agentmesh.testing.strategies import auth_frames, auth_responses, damaged
from agentmesh.wire.messages.mesh.v1 import AuthFrame, AuthResponse

tokens = st.binary(min_size=1, max_size=100)


@given(tokens)
def test_credentials_come_back(token: bytes) -> None:
    assert decode_frame_message(encode_frame_message(token)) == token
    assert decode_answer(encode_answer(Answer(True, token))) == Answer(True, token)


@given(st.text(max_size=MAX_ERROR_CHARS))
def test_refusals_come_back(error: str) -> None:
    assert decode_answer(encode_answer(Answer(False, error=error))) == Answer(False, error=error)


def test_only_what_belongs_to_an_answer_is_taken() -> None:
    both = AuthResponse(success=True, error="but", biscuit=b"token")
    assert decode_answer(bytes(both)) == Answer(True, b"token")
    both.success = False
    assert decode_answer(bytes(both)) == Answer(False, error="but")
    assert decode_answer(bytes(AuthResponse(error="x" * 1000))) == Answer(False, error="x" * MAX_ERROR_CHARS)


@pytest.mark.parametrize("data", [b"", bytes(AuthFrame(target_service="mcp"))])
def test_a_frame_without_a_credential_is_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame_message(data)


def test_a_success_without_a_credential_is_none() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(bytes(AuthResponse(success=True)))


@given(auth_frames().map(bytes) | auth_responses().map(bytes))
def test_any_message_decodes_or_is_the_peers_fault(data: bytes) -> None:
    check(data)


@given(damaged(auth_frames().map(bytes) | auth_responses().map(bytes)))
def test_damaged_messages_are_the_peers_fault(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    for decode in (decode_frame_message, decode_answer):
        try:
            decode(data)
        except RemoteProtocolError as exc:
            assert data == b"" or repr(data) not in str(exc)


def test_a_credential_is_not_printed() -> None:
    assert "secret" not in repr(Answer(True, b"secret"))
