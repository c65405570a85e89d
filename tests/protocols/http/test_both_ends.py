"""h11 as the caller and our machine as the provider, over a wire that cuts and delays as it likes."""

import h11
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.protocols.http.events import BodyReceived, CallerLeft, RequestReceived
from agentmesh.protocols.http.machine import ServerExchange, State

PIECE = st.binary(min_size=1, max_size=30)
SIZE = st.integers(1, 60)


class BothEnds(RuleBasedStateMachine):
    """What one end says, the other hears: in order, complete when it is said to be, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.caller = h11.Connection(h11.CLIENT)
        self.provider = ServerExchange(0.0)
        self.there, self.back = bytearray(), bytearray()
        self.asked, self.answered = b"", b""  # what was said
        self.heard, self.read = b"", b""  # what arrived
        self.request_whole = self.answer_whole = False
        self.there += self.caller.send(
            h11.Request(method="POST", target="/", headers=[("Host", "h"), ("Transfer-Encoding", "chunked")])
        )

    @precondition(lambda self: self.caller.our_state is h11.SEND_BODY)
    @rule(piece=PIECE)
    def ask(self, piece: bytes) -> None:
        self.there += self.caller.send(h11.Data(data=piece))
        self.asked += piece

    @precondition(lambda self: self.caller.our_state is h11.SEND_BODY)
    @rule()
    def finish_asking(self) -> None:
        self.there += self.caller.send(h11.EndOfMessage())

    @rule(size=SIZE)
    def carry_there(self, size: int) -> None:
        if data := bytes(self.there[:size]):
            del self.there[:size]
            self.provider.receive_data(data, 0.0)

    @rule()
    def hear(self) -> None:
        match self.provider.next_event():
            case BodyReceived(data, more):
                self.heard += data
                self.request_whole = not more
            case CallerLeft():
                assert self.provider.state is State.CUT
            case None | RequestReceived():
                pass
            case other:
                raise AssertionError(other)

    @precondition(lambda self: self.provider.state is State.OPEN)
    @rule()
    def begin_answering(self) -> None:
        self.provider.send_response(200, [])

    @precondition(lambda self: self.provider.state is State.ANSWERING)
    @rule(piece=PIECE)
    def answer(self, piece: bytes) -> None:
        self.provider.send_body(piece)
        self.answered += piece

    @precondition(lambda self: self.provider.state is State.ANSWERING)
    @rule()
    def finish_answering(self) -> None:
        self.provider.send_end()

    @rule(size=SIZE)
    def carry_back(self, size: int) -> None:
        self.back += self.provider.data_to_send()
        if data := bytes(self.back[:size]):
            del self.back[:size]
            self.caller.receive_data(data)
        while not self.answer_whole:
            match self.caller.next_event():
                case h11.Data(data=piece):
                    self.read += bytes(piece)
                case h11.EndOfMessage():
                    self.answer_whole = True
                case h11.Response():
                    pass
                case _:
                    break

    @rule()
    def leave(self) -> None:
        self.provider.caller_left("it does so")

    @invariant()
    def nothing_is_invented(self) -> None:
        assert self.asked.startswith(self.heard)
        assert self.answered.startswith(self.read)

    @invariant()
    def whole_means_whole(self) -> None:
        if self.request_whole:
            assert self.heard == self.asked
        if self.answer_whole:
            assert self.read == self.answered
            assert self.provider.state is State.ANSWERED


TestBothEnds = BothEnds.TestCase
TestBothEnds.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
