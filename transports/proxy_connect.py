"""The exchange that makes a proxy lead on to a target: CONNECT (RFC 9110, 9.3.6), without I/O.

What comes behind the answer is the target's, and is given back as it came.
"""

import sys

import attrs
import h11

from agentmesh.errors import LimitExceededError, RemoteProtocolError

MAX_ANSWER_BYTES = 16 * 1024  # of the proxy's answer and the informational ones before it


@attrs.frozen
class Established:
    """The proxy has reached the target.

    Attributes:
        received: the target's first bytes, if they came right behind the answer.
    """

    received: bytes = attrs.field(repr=False)


@attrs.frozen
class Refused:
    """The proxy said no.

    Attributes:
        status: the HTTP status of its answer, 300 or above.
    """

    status: int


class ConnectExchange:
    """One CONNECT, as the client.

    Args:
        target: `host:port`, an IPv6 address in brackets; a name is in ASCII.
        authorization: the value of Proxy-Authorization, if any.
    """

    def __init__(self, target: str, authorization: str | None = None) -> None:
        # No limit of h11's own: it does not count the answers before the last, and refuses what is longer as malformed.
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=sys.maxsize)
        self._received_bytes = 0
        headers = [("Host", target)]
        if authorization is not None:
            headers.append(("Proxy-Authorization", authorization))
        request = self._http.send(h11.Request(method="CONNECT", target=target, headers=headers))
        end = self._http.send(h11.EndOfMessage())
        self._out = (request or b"") + (end or b"")

    def data_to_send(self) -> bytes:
        """The request, once."""
        out, self._out = self._out, b""
        return out

    def receive_data(self, data: bytes) -> Established | Refused | None:
        """Take what came from the proxy; not to be called again after an answer.

        Returns:
            The answer, None while it is not whole.
        Raises:
            LimitExceededError: it is longer than MAX_ANSWER_BYTES.
            RemoteProtocolError: it is no answer to a CONNECT.
        """
        self._received_bytes += len(data)
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = self._http.next_event()
        except h11.RemoteProtocolError as exc:
            raise RemoteProtocolError(f"the answer to CONNECT is no HTTP: {exc}") from exc
        if isinstance(event, h11.Response):
            return self._answer(event.status_code)
        if self._received_bytes > MAX_ANSWER_BYTES:
            raise LimitExceededError("the answer to CONNECT does not end", limit="MAX_ANSWER_BYTES")
        return None

    def _answer(self, status: int) -> Established | Refused:
        if status >= 300:
            return Refused(status)
        received, _ = self._http.trailing_data
        return Established(received)
