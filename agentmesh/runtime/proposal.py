"""What a stream that we open proposes, and the peer's answer: nearly always the same bytes, which are compared."""

from agentmesh.runtime.multistream import Proposer, opening_of


class Proposal:
    """One protocol, proposed on one stream.

    Attributes:
        opening: what the stream begins with.
    """

    __slots__ = ("_awaited", "_machine", "_protocol", "opening")

    def __init__(self, protocol: str) -> None:
        self.opening = self._awaited = opening_of(protocol)
        self._protocol = protocol
        self._machine: Proposer | None = None  # once the answer is another

    def receive_data(self, data: bytes) -> bytes | None:
        """Take bytes of the answer.

        Returns:
            What came behind it, once the peer agrees; None while the answer is not whole.
        Raises:
            RejectedError: the peer does not speak the protocol.
            RemoteProtocolError: it does not speak multistream.
        """
        heard = min(len(data), len(self._awaited))
        if self._machine is None and data[:heard] == self._awaited[:heard]:
            self._awaited = self._awaited[heard:]
            return None if self._awaited else data[heard:]
        if self._machine is None:
            self._machine = Proposer([self._protocol])
            data = self.opening.removesuffix(self._awaited) + data
        return None if self._machine.receive_data(data) is None else self._machine.trailing()
