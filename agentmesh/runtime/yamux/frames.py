"""The frame header: twelve bytes, big-endian (spec.md, "Framing")."""

import enum
import struct

from agentmesh.errors import RemoteProtocolError

HEADER = struct.Struct(">BBHII")  # version, type, flags, stream id, length
HEADER_BYTES = HEADER.size
VERSION = 0
SESSION_ID = 0  # pings and go-aways belong to no stream
MAX_STREAM_ID = 2**32 - 1

SYN, ACK, FIN, RST = 0x1, 0x2, 0x4, 0x8
ALL_FLAGS = SYN | ACK | FIN | RST


class FrameType(enum.IntEnum):
    DATA = 0
    WINDOW_UPDATE = 1
    PING = 2
    GO_AWAY = 3


class GoAwayCode(enum.IntEnum):
    NORMAL = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2


# Type, flags, stream and length: payload bytes, a window delta, a ping's value or an error code, by type and flags.
# A bare tuple: there is one for every frame.
Header = tuple[int, int, int, int]


def encode_header(frame_type: int, flags: int, stream_id: int, length: int) -> bytes:
    return HEADER.pack(VERSION, frame_type, flags, stream_id, length)


def decode_header(data: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """Read the header at `offset`.

    Raises:
        RemoteProtocolError: another version, an unknown type or flag, or a stream frame without a stream.
    """
    version, frame_type, flags, stream_id, length = HEADER.unpack_from(data, offset)
    if version != VERSION or frame_type > FrameType.GO_AWAY or flags & ~ALL_FLAGS:
        raise RemoteProtocolError(f"not a yamux frame: version {version}, type {frame_type}, flags {flags:#x}")
    if (stream_id == SESSION_ID) != (frame_type >= FrameType.PING):
        raise RemoteProtocolError(f"yamux frame of type {frame_type} on stream {stream_id}")
    return frame_type, flags, stream_id, length
