"""Every setting flips something: the table says which test shows it, and no setting is without one."""

import ast
from pathlib import Path

import attrs
import pytest

from agentmesh.runtime.config import ConnectionLimits, HostConfig, SessionConfig
from agentmesh.runtime.yamux import MuxLimits

HERE = Path(__file__).parent
WASTE = "../hostile/test_yamux.py::test_waste_beyond_its_limit_costs_the_session"
GROUPS = {"mux", "session", "connections"}  # settings that are settings themselves

SHOWN_BY: dict[type, dict[str, str]] = {
    SessionConfig: {
        "ping_interval": "test_session_end.py::test_how_soon_a_peer_is_lost_is_set_by_the_ping_interval",
        "close_timeout": "test_session_end.py::test_closing_is_bounded_though_the_peer_does_not_read",
        "negotiation_timeout": "test_accept.py::test_a_stream_that_names_no_protocol_is_cut_at_the_deadline",
        "send_buffer_bytes": "test_session.py::test_a_sender_leaves_no_more_queued_than_it_may",
        "write_bytes": "test_session.py::test_the_writer_joins_what_is_queued",
    },
    ConnectionLimits: {
        "high_watermark": "test_connections.py::test_above_the_high_watermark_the_oldest_go_down_to_the_low_one",
        "low_watermark": "test_connections.py::test_above_the_high_watermark_the_oldest_go_down_to_the_low_one",
        "max_per_source": "test_connections.py::test_a_source_holds_so_many_connections",
        "max_handshakes": "test_connections.py::test_so_many_handshakes_at_once",
        "max_handshakes_per_source": "test_connections.py::test_one_source_cannot_take_all_the_handshakes",
        "max_held_bytes": "test_memory.py::test_the_session_that_holds_most_ends_when_all_hold_too_much",
        "max_host_window_bytes": "test_memory.py::test_windows_of_all_sessions_grow_within_one_bound",
    },
    HostConfig: {
        "handshake_timeout": "test_host.py::test_a_client_that_stops_in_the_handshake_is_cut_at_the_deadline",
        "dial_timeout": "test_dial_failures.py::test_a_dial_that_nobody_answers_ends",
        "close_timeout": "test_host.py::test_leaving_is_bounded_though_no_peer_reads",
        "max_dial_addresses": "test_dialing.py::test_so_many_addresses_are_tried",
        "dial_stagger": "test_dialing.py::test_the_next_address_is_tried_when_the_last_is_slow",
    },
    MuxLimits: {
        "max_inbound_streams": "test_session.py::test_one_more_than_the_peer_allows_is_rejected_and_the_others_go_on",
        "max_outbound_streams": "test_stream.py::test_our_own_limit_is_told_when_opening_or_at_the_first_use",
        "max_window_bytes": "yamux/test_flow.py::test_a_long_path_grows_the_window_though_new_credit_is_under_way",
        "max_session_window_bytes": "yamux/test_flow.py::test_a_window_that_limits_grows_within_its_bounds",
        "max_frame_bytes": "yamux/test_machine.py::test_control_goes_first_and_streams_take_turns",
        "max_control_bytes": "yamux/test_machine.py::test_a_peer_that_causes_more_than_it_reads_is_cut_off",
        "linger_timeout": "test_session_end.py::test_a_stream_that_its_peer_never_ends_is_reset_in_time",
        "max_buffered_bytes": "../hostile/test_yamux.py::test_bytes_that_nobody_takes_cost_the_session",
        "stall_timeout": "../hostile/test_yamux.py::test_a_peer_that_gives_no_credit_loses_the_stream",
        "max_resets": WASTE,
        "max_refusals": WASTE,
        "max_unnamed": WASTE,
        "max_late_frames": WASTE,
        "max_empty_frames": WASTE,
        "max_pings": WASTE,
        "max_go_aways": WASTE,
    },
}


@pytest.mark.parametrize("config", SHOWN_BY, ids=lambda config: config.__name__)
def test_every_setting_has_its_test(config: type[attrs.AttrsInstance]) -> None:
    fields = {field.name for field in attrs.fields(config)}
    assert fields - GROUPS == set(SHOWN_BY[config])


@pytest.mark.parametrize("test", sorted({test for tests in SHOWN_BY.values() for test in tests.values()}))
def test_that_test_is_there_and_names_the_setting(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((HERE / file).read_text())
    (function,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    )
    source = ast.unparse(function)
    settings = [setting for tests in SHOWN_BY.values() for setting, shown_by in tests.items() if shown_by == test]
    assert all(setting in source or setting.upper() in source for setting in settings), f"{settings} not in {name}"
