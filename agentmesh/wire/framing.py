"""Messages in a byte stream: each preceded by its length as an unsigned varint (multiformats "unsigned-varint").

Sans-IO: bytes in, frames out.
"""

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError

MAX_VARINT_BYTES = 9  # the specification's bound: 63 bits
MAX_VARINT = (1 << 7 * MAX_VARINT_BYTES) - 1

ByteString = bytes | bytearray | memoryview


def encode_varint(value: int) -> bytes:
    """The one shortest spelling of `value`.

    Raises:
        LocalProtocolError: `value` is negative or above 63 bits.
    """
    if not 0 <= value <= MAX_VARINT:
        raise LocalProtocolError(f"no unsigned varint: {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: ByteString, start: int = 0) -> tuple[int, int] | None:
    """Read the varint that begins at `start`.

    Returns:
        Its value and the index behind it, or None when `data` ends before it does.
    Raises:
        RemoteProtocolError: it is longer than 9 bytes, or not the shortest spelling of its value.
    """
    value = 0
    for index, byte in enumerate(data[start : start + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if byte == 0 and index > 0:
                raise RemoteProtocolError("a varint that is not the shortest")
            return value, start + index + 1
    if len(data) - start >= MAX_VARINT_BYTES:
        raise RemoteProtocolError(f"a varint of more than {MAX_VARINT_BYTES} bytes")
    return None


def encode_frame(data: bytes) -> bytes:
    """`data` with its length before it."""
    return encode_varint(len(data)) + data


class FrameReader:
    """Cuts what a peer sends into frames.

        while (frame := reader.next_frame()) is None:
            reader.receive_data(await stream.receive_some())

    Read like this it holds no more than one frame and one chunk: a frame above the bound is refused when its length has
    come, before its bytes are. After an error the reader is finished; every further call raises that error again.

    Args:
        max_frame_bytes: the longest frame allowed, its length prefix not counted.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._error: RemoteProtocolError | None = None

    def receive_data(self, data: ByteString) -> None:
        """Take bytes as they came, cut anywhere. Only keeps them."""
        if self._error is not None:
            raise self._error
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next frame, or None when it is not complete.

        Raises:
            LimitExceededError: it is longer than `max_frame_bytes`.
            RemoteProtocolError: its length is no canonical varint.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._cut()
        except RemoteProtocolError as error:
            self._error = error
            self._buffer.clear()
            raise

    def trailing(self) -> bytes:
        """Hand over what has come and is in no frame yet; the reader is empty then.

        On a stream that ends with a frame this is empty, or the peer broke off. On one that goes on as something else
        (a circuit behind its last message) it is the start of that.
        """
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _cut(self) -> bytes | None:
        head = decode_varint(self._buffer)
        if head is None:
            return None
        length, start = head
        if length > self.max_frame_bytes:
            raise LimitExceededError(f"a frame of {length} bytes; at most {self.max_frame_bytes} are allowed")
        if len(self._buffer) < start + length:
            return None
        frame = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        return frame
