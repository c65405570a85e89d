"""What tests of the proxies' machines share."""

from hypothesis import strategies as st

from agentmesh.forward.front import Event, Front


def said(machine: Front) -> list[Event]:
    """Every event that is there."""
    events: list[Event] = []
    while (event := machine.next_event()) is not None:
        events.append(event)
    return events


def pieces_of(wire: bytes) -> st.SearchStrategy[list[bytes]]:
    """The bytes in pieces, none of them empty: cut at a few places, or at all."""

    def cut(places: list[int]) -> list[bytes]:
        edges = [0, *sorted(places), len(wire)]
        return [wire[start:end] for start, end in zip(edges, edges[1:], strict=False) if start < end]

    some = st.lists(st.integers(0, len(wire)), max_size=12).map(cut)
    return some | st.just([bytes((byte,)) for byte in wire])
