"""HAProxy as a relay of TCP, which moves bytes by splice where the kernel can: a worker, which runs it and watches it.

When the worker ends, so does HAProxy.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.commands import Answer, Serve, run_worker
from tests.servers.server import SYSTEM_PATH, UNPACKED, environment, free_port, run_server

CONFIGURATION = """
global
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    option splice-auto
frontend members
    bind 127.0.0.1:{port} backlog 4096
    default_backend server
backend server
    server one 127.0.0.1:{target}
"""


def find_haproxy() -> str | None:
    """HAProxy of Debian's packages as `make setup` unpacks them, else that of the machine."""
    return next(map(str, UNPACKED.glob("**/*bin/haproxy")), None) or shutil.which("haproxy", path=SYSTEM_PATH)


def why_not() -> str | None:
    """What is missing here."""
    return None if find_haproxy() else "HAProxy is not here: `make setup` fetches it, or install it"


def version() -> str:
    program = find_haproxy()
    if program is None:
        return ""
    said = subprocess.run([program, "-v"], env=environment(), capture_output=True, text=True, check=False, timeout=10)
    found = re.search(r"version (\S+)", said.stdout)
    return f"HAProxy {found[1]}" if found else ""


async def run_relay(settings: Answer, ready: Serve) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="agentmesh-bench-") as folder:
        file = Path(folder) / "haproxy.cfg"
        file.write_text(CONFIGURATION.format(port=port, target=settings["B"]["port"]))
        async with run_server(["haproxy", "-db", "-f", file], port) as process:
            await ready({"port": port, "pid": process.pid})


if __name__ == "__main__":
    run_worker({"R": run_relay})
