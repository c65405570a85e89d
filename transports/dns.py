"""Questions to a DNS server for texts, and its answers, to and from bytes (RFC 1035). Pure."""

import struct

import attrs

from agentmesh.errors import RemoteProtocolError

TXT = 16
INTERNET = 1
NO_SUCH_NAME = 3
MAX_RECORDS = 64  # of one answer; more are not read
MAX_MESSAGE_BYTES = 65535

_HEADER = struct.Struct(">6H")  # number, flags, and how many: questions, answers, authorities, others
_QUESTION = struct.Struct(">2H")
_RECORD = struct.Struct(">2HIH")  # type, class, seconds that it is good for, bytes
_IS_ANSWER, _IS_TRUNCATED, _RECURSION_DESIRED, _CODE = 0x8000, 0x0200, 0x0100, 0x000F
_POINTER = 0xC0


@attrs.frozen
class TxtAnswer:
    """What a server says.

    Attributes:
        texts: of the name, each whole.
        code: 0 when all is well, NO_SUCH_NAME, or what went wrong.
        is_truncated: it did not fit; ask over TCP.
    """

    texts: tuple[str, ...] = ()
    code: int = 0
    is_truncated: bool = False


def encode_question(number: int, name: str) -> bytes:
    """Ask for the texts of a name.

    Args:
        number: of 16 bits, which the answer repeats.
        name: in ASCII.
    Raises:
        ValueError: it is no name that DNS can hold.
    """
    labels = [label.encode("ascii") for label in name.split(".")]
    if not all(0 < len(label) < 64 for label in labels) or sum(len(label) + 1 for label in labels) > 254:
        raise ValueError(f"{name!r} is no name that DNS can hold")
    spelt = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return _HEADER.pack(number, _RECURSION_DESIRED, 1, 0, 0, 0) + spelt + _QUESTION.pack(TXT, INTERNET)


def decode_answer(data: bytes, question: bytes) -> TxtAnswer:
    """Read the answer to `question`, as `encode_question` made it.

    Raises:
        RemoteProtocolError: it is none, or one to another question.
    """
    try:
        return _decoded(data, question)
    except (struct.error, IndexError):
        raise RemoteProtocolError("a DNS answer that is not whole") from None


def _decoded(data: bytes, question: bytes) -> TxtAnswer:
    number, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    asked, said = question[_HEADER.size :].lower(), data[_HEADER.size :].lower()
    is_ours = number == _HEADER.unpack_from(question)[0] and questions == 1 and said.startswith(asked)
    if not is_ours or not flags & _IS_ANSWER:
        raise RemoteProtocolError("a DNS message that is no answer to what was asked")
    texts, at = list[str](), len(question)
    for _ in range(0 if flags & _IS_TRUNCATED else min(answers, MAX_RECORDS)):
        at = _behind_name(data, at)
        kind, group, _, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if (kind, group) == (TXT, INTERNET):
            texts.append(_text_in(_exactly(data, at, size)))
        at += size
    return TxtAnswer(tuple(texts), flags & _CODE, bool(flags & _IS_TRUNCATED))


def _behind_name(data: bytes, at: int) -> int:
    while size := data[at]:
        if size & _POINTER:
            return at + 2
        at += 1 + size
    return at + 1


def _text_in(record: bytes) -> str:
    """A text is cut into pieces of at most 255 bytes."""
    pieces, at = list[bytes](), 0
    while at < len(record):
        pieces.append(_exactly(record, at + 1, record[at]))
        at += 1 + record[at]
    return b"".join(pieces).decode("utf-8", "replace")


def _exactly(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) < size:
        raise RemoteProtocolError("a DNS answer that is not whole")
    return piece
