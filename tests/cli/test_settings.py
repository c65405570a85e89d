"""Every setting of a program has a flag, and a key in a file of YAML; or a reason why it has none."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner

from agentmesh.agent import AgentProcessConfig
from agentmesh.cli import agent_run, control_plane, forward, node, one, router
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.model import Policy
from agentmesh.forward import BindAddress, Forward, ForwardConfig
from agentmesh.membership import Enrollment
from agentmesh.node import NodeConfig, Reachability, TunnelTarget
from agentmesh.one import OneConfig
from agentmesh.pool.agent.access import Rule
from agentmesh.pool.agent.config import AgentConfig
from agentmesh.pool.router.remotes import RemotePolicy
from agentmesh.router import RouterConfig
from agentmesh.types import Address

ENROLLMENT = Enrollment(control_plane="http://127.0.0.1:8080")
DEFAULTS: dict[str, tuple[ModuleType, Any]] = {
    "node": (node, NodeConfig(enrollment=ENROLLMENT)),
    "router": (router, RouterConfig(enrollment=ENROLLMENT)),
    "agent": (agent_run, AgentProcessConfig(enrollment=ENROLLMENT, agent=AgentConfig(id="devbox"))),
    "control-plane": (control_plane, Config()),
    "one": (one, OneConfig()),
    "forward": (forward, ForwardConfig(node=NodeConfig(enrollment=ENROLLMENT), agent="devbox")),
}
ARGUMENTS = {"forward": ("devbox", "tcp://h:8", "--listen", "127.0.0.1:7")}  # what a program does not run without
NEEDED = {"agent": "agent-id: devbox\n"}  # what a file has to say besides
SITE = "site: a"
LISTEN = "/ip4/127.0.0.1/tcp/7"
HERE = BindAddress("127.0.0.1", 7)
HERE_TO_H1 = Forward(HERE, TunnelTarget("h", 1))

# By setting: its key, what a file says (FILE is one that is there), and what becomes of it.
Case = tuple[str, str, object]
MEMBER: dict[str, Case] = {
    "enrollment.control_plane": ("control-plane", "http://h:1", "http://h:1"),
    "enrollment.token": ("bootstrap-token-path", "FILE", "secret"),
    "enrollment.jwt_path": ("jwt-path", "/a", Path("/a")),
    "enrollment.labels": ("label", f"{{{SITE}}}", {"site": "a"}),
    "enrollment.retry_budget": ("retry-budget", "7s", 7.0),
    "state_dir": ("data-dir", "/a", Path("/a")),
}
SERVER: dict[str, Case] = {
    **MEMBER,
    "listen": ("listen", f"[{LISTEN}]", (Address.parse(LISTEN),)),
    "host.connections.high_watermark": ("high-watermark", "9000", 9000),
    "host.connections.low_watermark": ("low-watermark", "7", 7),
}
SETTINGS: dict[str, dict[str, Case]] = {
    "node": {
        **SERVER,
        "reachability": ("reachability", "auto", Reachability.AUTO),
        "routers": ("routers", "3", 3),
        "router_selector": ("router-selector", f"{{{SITE}}}", {"site": "a"}),
        "router_prefer": ("router-prefer", f"{{{SITE}}}", {"site": "a"}),
        "require_labels": ("require-label", "[site=a]", {"site": "a"}),
        "monitor_interval": ("monitor-interval", "2m", 120.0),
        "ready_timeout": ("ready-timeout", "1s", 1.0),
        "idle_timeout": ("idle-timeout", "2m", 120.0),
        "data_path": ("data-path", "false", False),
    },
    "router": {
        **SERVER,
        "external_addresses": ("external-addr", f"[{LISTEN}]", (Address.parse(LISTEN),)),
        "tls_certificate": ("tls-certificate-path", "/a", Path("/a")),
        "lease_renew_interval": ("lease-renew-interval", "1m", 60.0),
        "shutdown_lease_ttl": ("shutdown-lease-ttl", "0", 0.0),
        "host.connections.max_per_source": ("conns-per-source-ip", "5", 5),
        "host.connections.max_handshakes": ("max-handshakes", "5", 5),
        "host.connections.max_handshakes_per_source": ("max-handshakes-per-source", "5", 5),
        "host.connections.max_held_bytes": ("max-held-bytes", "5000000", 5_000_000),
        "relay.book.max_reservations": ("relay-max-reservations", "5", 5),
        "relay.book.max_reservations_per_source": ("conns-per-source-ip", "5", 5),
        "relay.book.max_circuits_per_peer": ("relay-max-circuits", "5", 5),
        "relay.circuit.max_duration": ("relay-limit-duration", "1m", 60.0),
        "relay.circuit.max_bytes": ("relay-limit-data", "5", 5),
        "relay.data_path.enabled": ("relay-data-path", "false", False),
        "relay.data_path.max_circuits": ("relay-max-data-paths", "5", 5),
        "directory.store.max_records": ("directory-max-records", "5", 5),
        "directory.store.record_ttl": ("directory-record-ttl", "1h", 3600.0),
        "agents.registry": ("agent-registry", "/a.db", "/a.db"),
        "agents.limits.max_connections_per_agent": ("max-connections-per-agent", "5", 5),
        "agents.limits.max_connections_per_token": ("max-connections-per-token", "5", 5),
        "agents.limits.max_connections_per_node": ("max-connections-per-node", "5", 5),
        "agents.limits.registrations_per_second": ("registrations-per-second", "2.5", 2.5),
        "agents.limits.max_streams_per_connection": ("max-streams-per-connection", "5", 5),
        "agents.limits.max_streams_per_agent": ("max-streams-per-agent", "5", 5),
        "agents.ingress.remote_policy": ("remote-policy", "p2c", RemotePolicy.P2C),
        "agents.ingress.local_spill_score": ("local-spill-score", "5", 5),
        "agents.lease_ttl": ("agent-lease-ttl", "1m", 60.0),
        "agents.drain_timeout": ("agent-drain-timeout", "5s", 5.0),
    },
    "agent": {
        **MEMBER,
        "agent.id": ("agent-id", "other", "other"),
        "agent.server_url": ("server-url", "wss://h/ws/agent/v1", "wss://h/ws/agent/v1"),
        "agent.instance_id": ("instance-id", "one", "one"),
        "agent.connections.min": ("connections-min", "2\nconnections-max: 3", 2),
        "agent.connections.max": ("connections-max", "8", 8),
        "agent.connections.high_watermark": ("connections-high-watermark", "32", 32),
        "agent.connections.low_watermark": ("connections-low-watermark", "0", 0),
        "agent.connections.evaluation_interval": ("connections-evaluation-interval", "5s", 5.0),
        "agent.connections.cooldown": ("connections-cooldown", "1m", 60.0),
        "access.rules": ("allow", "['tcp://*:22']", (Rule(protocols=frozenset({"tcp"}), ports=((22, 22),)),)),
        "serving.max_streams": ("max-streams", "5", 5),
        "serving.max_dials": ("max-dials", "5", 5),
        "serving.max_pending_dials": ("max-pending-dials", "5", 5),
    },
    "forward": {
        **{f"node.{name}": case for name, case in MEMBER.items() if name.startswith(("enrollment.", "state_dir"))},
        "node.routers": ("routers", "3", 3),
        "node.router_selector": ("router-selector", f"{{{SITE}}}", {"site": "a"}),
        "node.router_prefer": ("router-prefer", f"{{{SITE}}}", {"site": "a"}),
        "node.ready_timeout": ("ready-timeout", "1s", 1.0),
        "forwards": ("forward", f"[{HERE}=tcp://h:1]", (HERE_TO_H1, Forward(HERE, TunnelTarget("h", 8)))),
        "socks": ("socks", f"'{HERE}'", HERE),
        "http_proxy": ("http-proxy", f"'{HERE}'", HERE),
        "password_path": ("password-path", f"/a\nsocks: '{HERE}'", Path("/a")),
        "allow_remote": ("allow-remote", "true", True),
        "max_connections": ("max-connections", "5", 5),
    },
    "control-plane": {
        "bind_address": ("bind-address", "h:1", "h:1"),
        "metrics_address": ("metrics-addr", "h:1", "h:1"),
        "db_dsn": ("db-dsn", "other.db", "other.db"),
        "admin_token": ("admin-token-path", "FILE", "secret"),
        "policy": ("policy-file", "POLICY", Policy()),
        "trust.issuers": ("issuer", "https://a.example", None),
        "trust.audiences": ("allowed-audiences", "a,b", ("a", "b")),
        "trust.require_nonce": ("require-nonce", "true", True),
        "oidc_client_id": ("oidc-client-id", "a", "a"),
        "oidc_session_ttl": ("oidc-session-ttl", "1h", 3600.0),
        "workload_session_ttl": ("workload-session-ttl", "1h", 3600.0),
        "insecure_skip_tls_verify": ("insecure-skip-tls-verify", "true", True),
        "auto_approve_enrollment": ("auto-approve-enrollment", "true", True),
        "biscuit_ttl": ("biscuit-ttl", "1h", 3600.0),
        "lease_duration": ("lease-duration", "1h", 3600.0),
        "key_rotation_interval": ("key-rotation-interval", "1h", 3600.0),
        "key_grace_period": ("key-grace-period", "2h", 7200.0),
        "node_retention": ("node-retention", "1h", 3600.0),
        "mesh_reconnect_interval": ("mesh-reconnect-interval", "1m", 60.0),
        "dht_replication": ("dht-replication", "2", 2),
        "poll_interval": ("poll-interval", "1s", 1.0),
        "enroll_rate": ("enroll-rate", "2.5", 2.5),
        "enroll_burst": ("enroll-burst", "2", 2),
    },
    "one": {
        "data_dir": ("data-dir", "FOLDER", None),
        "bind_address": ("bind-address", "h:1", "h:1"),
        "listen": ("listen", f"[{LISTEN}]", (Address.parse(LISTEN),)),
        "policy": ("policy-file", "POLICY", Policy()),
        "join_usages": ("join-usages", "7", 7),
    },
}
# What has none, and why; those that begin so.
REASONS: dict[str, dict[str, str]] = {
    "node": {
        "enrollment.role": "the program is the role",
        "host.connections.": "what strangers may do to a node is bounded by its few sessions",
    },
    "agent": {
        "enrollment.role": "an agent is a node",
        "host.connections.": "it is dialled by nobody, and agent.connections says how many it dials",
    },
    "forward": {
        "agent": "what it is for: an argument",
        "node.": "it serves nothing and calls nobody; the rest is a node's that does",
    },
    "router": {
        "enrollment.role": "the program is the role",
        "host.connections.max_host_window_bytes": "it goes with max_held_bytes, and is not reached before it",
        "relay.book.reservation_ttl": "members renew as the relay says; libp2p's hour",
        "relay.connect_timeout": "of the wire",
        "relay.data_path.": "of the wire: both ends count on these times",
        "agents.limits.": "of the wire: agents count on the heartbeat, and an epoch is remembered longer than a lease",
        "directory.": "of the wire: routers count on each other's, and one member cannot take all records",
    },
    "control-plane": {},
    "one": {"admin_token": "made at the first start, in the data folder"},
}
WIRE = ("host.session.", "host.handshake_timeout", "host.dial_", "host.close_timeout", "host.max_dial_addresses")


def leaves(value: Any, prefix: str = "") -> Iterator[str]:
    """The names of all settings, those of settings within settings behind a dot."""
    for field in attrs.fields(value.__class__):
        inner: Any = getattr(value, field.name)
        if attrs.has(inner.__class__) and not isinstance(inner, Address | BindAddress | Policy):
            yield from leaves(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def value_in(config: Any, setting: str) -> Any:
    for name in setting.split("."):
        config = getattr(config, name)
    return config


def run_with(program: str, folder: Path, key: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings that a program would run with, by a file with one key."""
    module, found = DEFAULTS[program][0], list[partial[object]]()
    (folder / "secret").write_text("secret\n")
    (folder / "policy.yaml").write_text("roles: []\n")
    for name, path in (("FILE", "secret"), ("POLICY", "policy.yaml"), ("FOLDER", "data")):
        text = text.replace(name, str(folder / path))
    (folder / "config.yaml").write_text(f"{NEEDED.get(program, '')}{key}: {text}\n")

    def keep(job: partial[object], **_: float) -> None:
        found.append(job)

    monkeypatch.setattr(module, "run_program", keep)
    monkeypatch.chdir(folder)
    arguments = [*ARGUMENTS.get(program, ()), "--config", "config.yaml"]
    result = CliRunner().invoke(vars(module)["command"], arguments, env={"AGENTMESH_ADMIN_TOKEN": ""})
    assert result.exit_code == 0, result.output
    return found[0].args[0]


@pytest.mark.parametrize("program", SETTINGS)
def test_every_setting_has_a_flag_or_a_reason_why_not(program: str) -> None:
    module, config = DEFAULTS[program]
    reasons = (*REASONS[program], *(WIRE if program in ("node", "router", "agent") else ()))
    without = [name for name in leaves(config) if name not in SETTINGS[program] and not name.startswith(reasons)]
    assert without == []
    assert set(SETTINGS[program]) <= set(leaves(config))
    command: click.Command = vars(module)["command"]
    flags = {flag for option in command.params for flag in option.opts}
    assert {f"--{key}" for key, _, _ in SETTINGS[program].values()} <= flags


@pytest.mark.parametrize(
    ("program", "setting"), [(program, setting) for program, settings in SETTINGS.items() for setting in settings]
)
def test_a_file_sets_it(program: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, text, expected = SETTINGS[program][setting]
    config = run_with(program, tmp_path, key, text, monkeypatch)
    assert value_in(config, setting) != value_in(DEFAULTS[program][1], setting)
    if expected is not None:
        assert value_in(config, setting) == expected


@pytest.mark.parametrize("program", DEFAULTS)
def test_without_a_file_the_settings_are_those_of_the_library(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, default = run_with(program, tmp_path, "log-level", "info", monkeypatch), DEFAULTS[program][1]
    differ = {"state_dir", "node.state_dir", "forwards", "admin_token"}
    assert {name for name in leaves(config) if value_in(config, name) != value_in(default, name)} <= differ


@pytest.mark.parametrize("program", DEFAULTS)
def test_what_a_file_has_that_is_no_option_is_refused_by_name(program: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"{NEEDED.get(program, '')}rooters: 3\nlog-level: info\n")
    command: click.Command = vars(DEFAULTS[program][0])["command"]
    result = CliRunner().invoke(command, ["--config", str(tmp_path / "config.yaml")])
    assert (result.exit_code, "no such option: rooters" in result.stderr) == (2, True), result.output
