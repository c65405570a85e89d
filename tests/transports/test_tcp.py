import errno
import resource
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from agentmesh.abc import ByteStream, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import check_transport
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.sockets import split_endpoint
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address

LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")


@asynccontextmanager
async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
    yield TcpTransport(), TcpTransport()


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0"])
async def test_conforms(address: str) -> None:
    await check_transport(make, Address.parse(address))
