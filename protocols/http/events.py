"""What comes out of the provider's machine."""

import attrs


@attrs.frozen
class RequestReceived:
    """The head of the request: always the first event, unless the exchange ended before it."""

    method: str  # upper case, as RFC 9110 names them
    path: bytes  # as it was sent: percent-encoded, no query
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case, repeated ones kept in order
    http_version: str  # "1.1" or "1.0"


@attrs.frozen
class BodyReceived:
    """A piece of the request's body."""

    data: bytes
    more: bool  # False: the request is whole
    trailers: tuple[tuple[bytes, bytes], ...] = ()  # of a chunked request, behind its last piece


@attrs.frozen
class RequestRefused:
    """The caller's bytes are no request. The answer that says so is queued; the last event."""

    status: int
    reason: str


@attrs.frozen
class CallerLeft:
    """The caller went away, or broke HTTP when the answer had begun. Nothing can be said any more; the last event."""

    reason: str


Event = RequestReceived | BodyReceived | RequestRefused | CallerLeft
