"""A link between two networks that delays and loses packets: a worker. Needs root, /dev/net/tun, and `ip`.

    router ── device ──╮ this process: each packet later, some never ╭── device ── agent, in a network of its own

What a kernel's netem does, this does for kernels that have none. Whoever is to be on the far side joins the network
namespace of this process (`nsenter --net=/proc/<pid>/ns/net`). All of it is gone when the process is.
"""

import ctypes
import fcntl
import os
import random
import shutil
import struct
import subprocess
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from benchmarks.commands import Answer, Serve, run_worker

TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
NEAR, FAR = "198.18.7.1", "198.18.7.2"  # of the range that is kept for benchmarks (RFC 2544)
PACKET_BYTES = 65536
MAX_PACKETS = 1000  # under way in one direction; what comes then is lost, as with netem
CONTROLS = ("reno", "cubic")  # the last that is allowed
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")  # of the network of whoever looks


def why_not() -> str:
    """Why there can be no such link here; "" when there can."""
    if os.geteuid() != 0:
        return "a lossy link takes root"
    if not TUN.exists():
        return f"a lossy link takes {TUN}"
    missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
    return f"a lossy link takes {' and '.join(missing)}" if missing else ""


def open_device(name: str, address: str) -> int:
    """A device of the network that this process is in now; its file. Raises OSError."""
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    for command in (("addr", "add", f"{address}/30", "dev", name), ("link", "set", name, "up")):
        subprocess.run(["ip", *command], check=True, capture_output=True)
    return device


def leave_network() -> None:
    """Into a network of our own, with nothing but its loopback. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, capture_output=True)


def choose_congestion_control() -> str:
    """Of this network: the usual one, or where that is not allowed its ancestor, to which loss is much the same."""
    for name in CONTROLS:
        with suppress(PermissionError):
            CONGESTION_CONTROL.write_text(name)
    return CONGESTION_CONTROL.read_text().strip()


@attrs.define
class Direction:
    """From one device to the other.

    Attributes:
        delay: seconds that each packet takes.
        loss: the share of packets that never arrive.
        passed, lost: packets.
    """

    source: int
    sink: int
    delay: float
    loss: float
    chance: random.Random
    passed: int = 0
    lost: int = 0
    _under_way: deque[tuple[float, bytes]] = attrs.Factory(deque[tuple[float, bytes]])
    _more: trio.Event = attrs.Factory(trio.Event)

    async def take(self) -> None:
        """Take packets, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self.source)
            try:
                while True:
                    self._take(os.read(self.source, PACKET_BYTES))
            except BlockingIOError:
                self._more.set()

    def _take(self, packet: bytes) -> None:
        if self.chance.random() < self.loss or len(self._under_way) >= MAX_PACKETS:
            self.lost += 1
        else:
            self._under_way.append((trio.current_time() + self.delay, packet))

    async def give(self) -> None:
        """Give each when it is time, until cancelled."""
        while True:
            if not self._under_way:
                self._more = trio.Event()
                await self._more.wait()
                continue
            await trio.sleep_until(self._under_way[0][0])
            while self._under_way and self._under_way[0][0] <= trio.current_time():
                _, packet = self._under_way.popleft()
                try:
                    os.write(self.sink, packet)
                    self.passed += 1
                except BlockingIOError:
                    self.lost += 1


async def run_link(settings: Answer, ready: Serve) -> None:
    """Be the link: `delay` seconds and `loss` each way, and a congestion control of TCP that loss slows down."""
    near = open_device(f"ambench{os.getpid() % 10**6}", NEAR)
    leave_network()
    far = open_device("ambench", FAR)
    control = choose_congestion_control()
    ways = [
        Direction(source, sink, settings["delay"], settings["loss"], random.Random(number))
        for number, (source, sink) in enumerate(((far, near), (near, far)))
    ]

    async def count() -> Answer:
        await trio.lowlevel.checkpoint()
        return {"passed": [way.passed for way in ways], "lost": [way.lost for way in ways]}

    async with trio.open_nursery() as nursery:
        for way in ways:
            nursery.start_soon(way.take)
            nursery.start_soon(way.give)
        nursery.start_soon(partial(ready, {"address": NEAR, "control": control, "pid": os.getpid()}, {"count": count}))


if __name__ == "__main__":
    run_worker({"link": run_link})
