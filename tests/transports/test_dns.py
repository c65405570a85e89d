"""Questions to DNS servers and their answers, as bytes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.transports.dns import MAX_RECORDS, NO_SUCH_NAME, TxtAnswer, decode_answer, encode_question
from tests.transports.dns_server import answer, name_in

NAME = "_dnsaddr.router.example"
QUESTION = encode_question(4711, NAME)
TEXTS = st.lists(st.text(max_size=300), max_size=5)


@given(TEXTS)
def test_texts_come_back_whole(texts: list[str]) -> None:
    assert name_in(QUESTION) == NAME
    assert decode_answer(answer(QUESTION, texts), QUESTION) == TxtAnswer(tuple(texts))


@given(TEXTS, st.data())
def test_damaged_answers_raise_nothing_else(texts: list[str], data: st.DataObject) -> None:
    whole = answer(QUESTION, texts)
    cut = data.draw(st.integers(0, len(whole)))
    damaged = bytearray(whole[:cut])
    for at in data.draw(st.lists(st.integers(0, max(cut - 1, 0)), max_size=3)):
        if damaged:
            damaged[at] ^= data.draw(st.integers(1, 255))
    with suppress(RemoteProtocolError):
        decode_answer(bytes(damaged), QUESTION)


def test_only_the_answer_to_the_question_is_one() -> None:
    for other in (encode_question(4712, NAME), encode_question(4711, "_dnsaddr.other.example")):
        with pytest.raises(RemoteProtocolError, match="no answer"):
            decode_answer(answer(other, ["x"]), QUESTION)
    with pytest.raises(RemoteProtocolError, match="no answer"):
        decode_answer(QUESTION, QUESTION)
    assert decode_answer(answer(encode_question(4711, NAME.upper()), ["x"]), QUESTION).texts == ("x",)


def test_what_a_server_says_besides() -> None:
    assert decode_answer(answer(QUESTION, [], flags=0x8183), QUESTION).code == NO_SUCH_NAME
    assert decode_answer(answer(QUESTION, ["x"], flags=0x8380), QUESTION) == TxtAnswer(is_truncated=True)
    assert len(decode_answer(answer(QUESTION, ["x"] * 100), QUESTION).texts) == MAX_RECORDS


@pytest.mark.parametrize("name", ["", "a..b", "x" * 64, ".".join(["abcdefg"] * 40)])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        encode_question(1, name)
