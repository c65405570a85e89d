"""How much a router takes: the options of `agentmesh router` that bound it, and what they make of its settings."""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import click

from agentmesh.cli.params import duration, with_options
from agentmesh.protocols.directory import DirectoryConfig, StoreLimits
from agentmesh.protocols.relay import BookLimits, CircuitLimits, DataPathConfig, RelayConfig
from agentmesh.runtime.config import ConnectionLimits

F = TypeVar("F", bound=Callable[..., Any])

CONNECTIONS, BOOK, DATA_PATH, STORE = ConnectionLimits(), BookLimits(), DataPathConfig(), StoreLimits()
AT_LEAST_ONE = click.IntRange(1)


def _count(flag: str, default: int, help: str) -> Callable[[F], F]:
    return click.option(flag, type=AT_LEAST_ONE, default=default, show_default=True, help=help)


OPTIONS = (
    click.option(
        "--high-watermark",
        type=click.IntRange(2),
        default=CONNECTIONS.high_watermark,
        show_default=True,
        help="Sessions above which unauthenticated ones are closed; at so many members, some are told to go elsewhere.",
    ),
    click.option("--low-watermark", type=AT_LEAST_ONE, help="Sessions that are left then.  [default: 15% below high]"),
    click.option(
        "--conns-per-source-ip",
        type=AT_LEAST_ONE,
        help="Connections of one address, loopback excepted.  [default: a quarter of high]",
    ),
    _count("--max-handshakes", CONNECTIONS.max_handshakes, "Inbound handshakes under way at once."),
    _count(
        "--max-handshakes-per-source",
        CONNECTIONS.max_handshakes_per_source,
        "Those among them of one address.",
    ),
    _count(
        "--max-held-bytes",
        CONNECTIONS.max_held_bytes,
        "What all sessions may hold that was not read or sent yet; beyond it the one that holds most ends.",
    ),
    click.option(
        "--relay-max-reservations", type=AT_LEAST_ONE, help="Members it relays to.  [default: the high watermark]"
    ),
    _count("--relay-max-circuits", BOOK.max_circuits_per_peer, "Circuits of one member."),
    click.option(
        "--relay-limit-duration",
        type=duration,
        default="1h",
        show_default=True,
        help="Longest life of a circuit; 0: none.",
    ),
    click.option(
        "--relay-limit-data",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Bytes that a circuit may carry each way; 0: no limit.",
    ),
    click.option(
        "--relay-data-path/--no-relay-data-path",
        default=True,
        show_default=True,
        help="Give circuits TCP connections of their own, through the same port, where both members reach it over TCP.",
    ),
    _count("--relay-max-data-paths", DATA_PATH.max_circuits, "Circuits that have such connections; others go without."),
    _count("--directory-max-records", STORE.max_records, "Records that its directory keeps."),
    click.option(
        "--directory-record-ttl",
        type=duration,
        default="15m",
        show_default=True,
        help="How long a record stays that nobody renews.",
    ),
)


def bounds_options(command: F) -> F:
    """Give a command the options above; `Bounds` takes them all, by their names."""
    return with_options(command, OPTIONS)


@attrs.frozen(kw_only=True)
class Bounds:
    """What the options say. ValueError: they do not go together."""

    high_watermark: int
    low_watermark: int | None
    conns_per_source_ip: int | None
    max_handshakes: int
    max_handshakes_per_source: int
    max_held_bytes: int
    relay_max_reservations: int | None
    relay_max_circuits: int
    relay_limit_duration: float
    relay_limit_data: int
    relay_data_path: bool
    relay_max_data_paths: int
    directory_max_records: int
    directory_record_ttl: float

    def connections(self) -> ConnectionLimits:
        """Of the host."""
        given = {"low_watermark": self.low_watermark, "max_per_source": self.conns_per_source_ip}
        return ConnectionLimits(
            high_watermark=self.high_watermark,
            max_handshakes=self.max_handshakes,
            max_handshakes_per_source=self.max_handshakes_per_source,
            max_held_bytes=self.max_held_bytes,
            **{name: value for name, value in given.items() if value is not None},
        )

    def relay(self) -> RelayConfig:
        """The budget follows that of connections unless it is said."""
        connections = self.connections()
        book = BookLimits(
            max_reservations=self.relay_max_reservations or connections.high_watermark,
            max_reservations_per_source=connections.max_per_source,
            max_circuits_per_peer=self.relay_max_circuits,
        )
        circuit = CircuitLimits(max_duration=self.relay_limit_duration, max_bytes=self.relay_limit_data)
        data_path = DataPathConfig(enabled=self.relay_data_path, max_circuits=self.relay_max_data_paths)
        return RelayConfig(book, circuit, data_path=data_path)

    def directory(self) -> DirectoryConfig:
        store = StoreLimits(max_records=self.directory_max_records, record_ttl=self.directory_record_ttl)
        return DirectoryConfig(store=store)
