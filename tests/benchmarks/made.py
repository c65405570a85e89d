"""Results that nobody measured."""

from benchmarks.machine import Machine
from benchmarks.results import Measurement, Results, Settings

MACHINE = Machine(
    cpu="A CPU",
    cores=2,
    memory_gib=8.0,
    kernel="Linux 6",
    python="3.11.7",
    openssl="OpenSSL 3",
    versions={"trio": "0.35.0"},
    load=0.1,
    busy=0.02,
)


def bulk(stack: str, repeat: int, rate: float, **more: float) -> Measurement:
    values = {"bytes_per_second": rate, "bytes": 2.0**28, "wall": 2.0, "cpu_caller": 1.0, "cpu_server": 0.5, **more}
    return Measurement(stack, "S1", repeat, values)


def scenario_results() -> Results:
    """S1 and S8 of three stacks; one of them failed once."""
    return Results(
        kind="scenarios",
        when="2026-01-02T03:04:05+00:00",
        machine=MACHINE,
        settings=Settings(("S1", "S8"), repeat=2, seconds=1.5, members=10),
        stacks=("agentmesh", "loopback-tls-trio", "haproxy-tls-trio"),
        left_out={"py-libp2p": "py-libp2p is not here"},
        measurements=[
            bulk("agentmesh", 0, 300e6, router_cpu_per_gib=1.0, cpu_router=0.2),
            bulk("agentmesh", 1, 500e6, router_cpu_per_gib=3.0, cpu_router=0.6),
            bulk("loopback-tls-trio", 0, 800e6),
            Measurement("loopback-tls-trio", "S1", 1, error="the server ended"),
            bulk("haproxy-tls-trio", 0, 600e6, router_cpu_per_gib=0.5, cpu_router=0.1),
        ],
        took=12.0,
        is_whole=True,
    )


def growth_results() -> Results:
    """Memory in proportion to the members, CPU per request that does not depend on the streams."""
    found = [
        *(("members", size, {"router_bytes": 50_000.0 * size}) for size in (100, 200, 400)),
        *(("streams", size, {"cpu_per_request": 40e-6, "server_bytes": 0.0}) for size in (16, 64, 256)),
    ]
    return Results(
        kind="growth",
        when="2026-01-02T03:04:05+00:00",
        machine=MACHINE,
        settings=Settings((), repeat=1, seconds=1.5, members=0),
        stacks=("agentmesh",),
        measurements=[Measurement("agentmesh", what, 0, values, size) for what, size, values in found],
        is_whole=True,
    )
