"""TLS over memory: two machines and a wire that cuts anywhere; strangers; bytes that are no TLS."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL

from agentmesh.errors import CertificateError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.runtime.tls import READ_BYTES, YAMUX_PROTOCOL, Side, TlsContext, TlsMachine
from tests.runtime.strangers import carry, forged_proof_of, proof_of, shake_hands, stranger

ALICE, BOB = Identity.generate(), Identity.generate()
CONTEXTS = {ALICE.peer: TlsContext(ALICE), BOB.peer: TlsContext(BOB)}
KIB = 1024
SIZES = [1, 16 * KIB - 1, 16 * KIB, 16 * KIB + 1, 48 * KIB, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, KIB * KIB]


def machines() -> tuple[TlsMachine, TlsMachine]:
    """Alice dials Bob."""
    return CONTEXTS[ALICE.peer].connection(Side.DIALER), CONTEXTS[BOB.peer].connection(Side.LISTENER)


def connected(cut: int = 1 << 30) -> tuple[TlsMachine, TlsMachine]:
    dialer, listener = machines()
    shake_hands(dialer, listener, cut)
    carry(listener, dialer)  # session tickets
    return dialer, listener


def everything(machine: TlsMachine) -> bytes:
    return b"".join(iter(lambda: bytes(machine.read()), b""))


def pattern(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


@given(st.integers(1, 3000))
def test_each_side_proves_its_key_however_the_handshake_is_cut(cut: int) -> None:
    dialer, listener = connected(cut)
    assert dialer.peer == BOB.peer
    assert listener.peer == ALICE.peer
    assert dialer.alpn == listener.alpn == YAMUX_PROTOCOL


def test_a_handshake_is_two_flights_and_an_answer() -> None:
    dialer, listener = machines()
    assert not dialer.handshake()
    assert carry(dialer, listener)
    assert not listener.handshake()
    assert carry(listener, dialer)
    assert dialer.handshake()
    assert carry(dialer, listener)
    assert listener.handshake()


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        ([YAMUX_PROTOCOL.encode()], YAMUX_PROTOCOL),
        ([b"libp2p"], "libp2p"),
        ([b"libp2p", YAMUX_PROTOCOL.encode()], YAMUX_PROTOCOL),  # ours to prefer
        ([b"h2", b"libp2p"], "libp2p"),
        ([b"h2"], ""),
        ([], ""),
    ],
)
def test_what_alpn_agrees_on(offered: list[bytes], agreed: str) -> None:
    dialer = stranger(Side.DIALER, proof_of(ALICE), alpn=offered)
    listener = CONTEXTS[BOB.peer].connection(Side.LISTENER)
    shake_hands(dialer, listener)
    assert dialer.alpn == listener.alpn == agreed
    assert listener.peer == ALICE.peer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cut", [1500, 1 << 30])
def test_plaintext_arrives_intact_both_ways(size: int, cut: int) -> None:
    dialer, listener = connected()
    for sender, receiver in itertools.permutations((dialer, listener)):
        sender.write(pattern(size))
        carry(sender, receiver, cut)
        assert everything(receiver) == pattern(size)
        assert sender.data_to_send() == b""


@given(st.lists(st.integers(0, 40_000), max_size=6), st.integers(1, 20_000))
def test_writes_join_into_one_stream_of_bytes(sizes: list[int], cut: int) -> None:
    dialer, listener = connected()
    data = pattern(sum(sizes))
    received = b""
    for end, size in zip(itertools.accumulate(sizes), sizes, strict=True):
        dialer.write(memoryview(data)[end - size : end])
        carry(dialer, listener, cut)
        received += everything(listener)
    assert received == data


def test_a_read_gives_no_more_than_its_memory_holds() -> None:
    dialer, listener = connected()
    dialer.write(bytes(READ_BYTES + 5))
    carry(dialer, listener)
    assert [len(listener.read()), len(listener.read()), len(listener.read())] == [READ_BYTES, 5, 0]


def test_the_memory_for_bytes_is_the_threads_however_many_members_it_has() -> None:
    dialer, listener = machines()
    assert dialer.buffer is listener.buffer


def test_nothing_has_come_yet() -> None:
    dialer, listener = connected()
    dialer.write(b"hello")
    wire = dialer.data_to_send()
    listener.receive_data(wire[:-1])
    assert len(listener.read()) == 0
    listener.receive_data(b"")
    assert len(listener.read()) == 0
    listener.receive_data(wire[-1:])
    assert bytes(listener.read()) == b"hello"


def test_the_end_comes_behind_the_last_bytes() -> None:
    dialer, listener = connected()
    dialer.write(b"bye")
    dialer.close()
    carry(dialer, listener)
    assert bytes(listener.read()) == b"bye"
    with pytest.raises(EOFError):
        listener.read()
    listener.write(b"goodbye")  # each direction ends on its own
    carry(listener, dialer)
    assert bytes(dialer.read()) == b"goodbye"


def test_a_close_in_the_middle_of_the_handshake_says_nothing() -> None:
    dialer, _ = machines()
    dialer.handshake()
    dialer.data_to_send()
    dialer.close()
    assert dialer.data_to_send() == b""


# ── strangers ──


def refuse(dialer: TlsMachine, listener: TlsMachine) -> None:
    """The listener refuses the handshake, and the dialer hears why."""
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        shake_hands(dialer, listener)
    carry(listener, dialer)
    with pytest.raises(RemoteProtocolError, match="alert"):
        dialer.read()


def test_a_client_without_a_certificate_is_refused() -> None:
    refuse(stranger(Side.DIALER), CONTEXTS[BOB.peer].connection(Side.LISTENER))


def test_a_client_of_tls_1_2_is_refused() -> None:
    dialer = stranger(Side.DIALER, proof_of(ALICE), version=SSL.TLS1_2_VERSION)
    refuse(dialer, CONTEXTS[BOB.peer].connection(Side.LISTENER))


def test_a_server_of_tls_1_2_is_refused_by_us() -> None:
    dialer = CONTEXTS[ALICE.peer].connection(Side.DIALER)
    listener = stranger(Side.LISTENER, proof_of(BOB), version=SSL.TLS1_2_VERSION)
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        shake_hands(dialer, listener)


@pytest.mark.parametrize("side", list(Side))
def test_a_forged_key_extension_proves_nothing(side: Side) -> None:
    ours, theirs = _against(side, stranger(side, forged_proof_of(ALICE)))
    with pytest.raises(CertificateError, match="not signed by the key"):
        _ = ours.peer
    assert theirs.peer == BOB.peer


@pytest.mark.parametrize("side", list(Side))
def test_two_certificates_are_one_too_many(side: Side) -> None:
    above, _ = proof_of(Identity.generate())
    ours, _ = _against(side, stranger(side, proof_of(ALICE), above=[above]))
    with pytest.raises(CertificateError, match="not exactly one"):
        _ = ours.peer


@pytest.mark.parametrize("side", list(Side))
def test_an_honest_stranger_is_who_it_says(side: Side) -> None:
    ours, _ = _against(side, stranger(side, proof_of(ALICE)))
    assert ours.peer == ALICE.peer


def test_before_the_handshake_nobody_is_proved() -> None:
    dialer, _ = machines()
    with pytest.raises(CertificateError, match="not exactly one"):
        _ = dialer.peer


def _against(side: Side, theirs: TlsMachine) -> tuple[TlsMachine, TlsMachine]:
    """Bob's end against a stranger's, after the handshake."""
    ours = CONTEXTS[BOB.peer].connection(Side.LISTENER if side is Side.DIALER else Side.DIALER)
    dialer, listener = (theirs, ours) if side is Side.DIALER else (ours, theirs)
    shake_hands(dialer, listener)
    return ours, theirs


# ── what is no TLS ──


def only_typed_errors(act: Callable[[], object]) -> bool:
    """Whether `act` went well; anything but a RemoteProtocolError leaves."""
    try:
        act()
    except RemoteProtocolError:
        return False
    return True


def read_if_allowed(machine: TlsMachine) -> bytes:
    try:
        return everything(machine)
    except RemoteProtocolError:
        return b""


@given(st.binary(min_size=1, max_size=2000), st.sampled_from(Side))
def test_garbage_instead_of_a_handshake(data: bytes, side: Side) -> None:
    machine = CONTEXTS[BOB.peer].connection(side)
    machine.receive_data(data)
    assert not only_typed_errors(lambda: _must_not_finish(machine))


def _must_not_finish(machine: TlsMachine) -> None:
    if not machine.handshake():
        raise RemoteProtocolError("it waits for more")
    raise AssertionError("a handshake with garbage")


@given(st.binary(min_size=1, max_size=2000))
def test_garbage_instead_of_a_record(data: bytes) -> None:
    _, listener = connected()
    listener.receive_data(data)
    assert read_if_allowed(listener) == b""


@given(st.integers(0, 2), st.integers(0, 1 << 16), st.integers(0, 7))
def test_a_bit_flipped_in_the_handshake_is_noticed_or_harmless(flight: int, position: int, bit: int) -> None:
    dialer, listener = machines()

    def shake() -> None:
        dialer.handshake()
        for number, (sender, receiver) in enumerate([(dialer, listener), (listener, dialer), (dialer, listener)]):
            wire = bytearray(sender.data_to_send())
            if number == flight:
                wire[position % len(wire)] ^= 1 << bit
            receiver.receive_data(wire)
            receiver.handshake()

    if only_typed_errors(shake) and listener.handshake():
        assert listener.peer == ALICE.peer
        assert dialer.peer == BOB.peer


@given(st.integers(0, 5000), st.integers(0, 7))
def test_a_bit_flipped_in_a_record_is_never_read(position: int, bit: int) -> None:
    dialer, listener = connected()
    dialer.write(pattern(5000))
    wire = bytearray(dialer.data_to_send())
    wire[position] ^= 1 << bit
    listener.receive_data(wire)
    assert read_if_allowed(listener) == b""


@given(st.integers(0, 5000))
def test_a_record_that_is_cut_off_waits(kept: int) -> None:
    dialer, listener = connected()
    dialer.write(pattern(5000))
    listener.receive_data(dialer.data_to_send()[:kept])
    assert everything(listener) == b""


def test_a_failed_machine_stays_failed() -> None:
    dialer, listener = connected()
    listener.receive_data(b"\x17\x03\x03\x00\x20" + bytes(32))
    for act in (listener.read, listener.read, lambda: listener.write(b"x")):
        with pytest.raises(RemoteProtocolError):
            act()
    carry(listener, dialer)
    with pytest.raises(RemoteProtocolError, match="alert"):
        dialer.read()
