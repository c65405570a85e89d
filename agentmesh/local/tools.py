"""The tools that an agent has of its node: looking around in the mesh, and calling the tools of other members."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import attrs
import trio

from agentmesh.errors import AddressError, DialError, ServiceError
from agentmesh.local.discover import shown
from agentmesh.local.providers import Discovery, Provider, collect
from agentmesh.local.remote_tools import open_session
from agentmesh.node import Node
from agentmesh.services import SERVICE_TYPES, ServiceKey
from agentmesh.services.labels import LABELS_HEADER
from agentmesh.types import PeerId

MAX_ASKED_AT_ONCE = 8  # services
SERVICE_TIMEOUT = 5.0  # seconds for one to list its tools
CALL_TIMEOUT = 300.0  # seconds for a tool
SCHEME = "mcp://"

Arguments = Mapping[str, Any]
TEXT, NUMBER, OBJECT = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "object"}
TYPE = {"type": "string", "enum": sorted(SERVICE_TYPES)}


@attrs.frozen
class Tool:
    """A tool in MCP's words, and what it does: gives a result of `tools/call`, or raises ValueError or ServiceError."""

    name: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    call: Callable[[Arguments], Awaitable[dict[str, Any]]]

    @property
    def shown(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": self.properties, "required": list(self.required)}
        return {"name": self.name, "description": self.description, "inputSchema": schema}


def result_of(content: Mapping[str, Any], *, is_error: bool = False) -> dict[str, Any]:
    """A result of `tools/call`: JSON, as structure and as text."""
    text = [{"type": "text", "text": json.dumps(content)}]
    return {"content": text, "structuredContent": dict(content), "isError": is_error}


class NodeTools:
    """The six tools of one node."""

    def __init__(self, node: Node, discovery: Discovery) -> None:
        self._node = node
        self._discovery = discovery
        peer = {"peer_id": TEXT, "tool_name": {"type": "string", "description": "mcp://<service>/<tool>"}}
        paged = {"type": TYPE, "name": TEXT, "limit": NUMBER, "offset": NUMBER}
        search = {"peer_id": TEXT, "service_name": TEXT, "tool_name": TEXT, "intent": TEXT}
        calling = {**peer, "arguments": OBJECT, "required_labels": OBJECT}
        tools = (
            Tool("get_mesh_info", "This node, and the routers it holds.", {}, (), self._mesh_info),
            Tool("list_local_services", "What this node serves.", {"type": TYPE}, (), self._local),
            Tool("discover_remote_services", "Services of other members.", paged, ("type",), self._discover),
            Tool("find_remote_tools", "MCP tools of other members.", search, (), self._find),
            Tool("describe_remote_tool", "One tool, with its arguments.", peer, tuple(peer), self._describe),
            Tool("call_remote_tool", "Call a tool of another member.", calling, tuple(peer), self._call),
        )
        self.tools = {tool.name: tool for tool in tools}

    async def _mesh_info(self, _: Arguments) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        connected = [str(peer) for peer in self._node.host.connections.peers]
        routers = [str(router) for router in self._node.routers]
        return result_of({"peer_id": str(self._node.peer), "attached_routers": routers, "connected_peers": connected})

    async def _local(self, given: Arguments) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        kind = given.get("type")
        services = [{"type": key.type, "name": key.name} for key in self._node.services if kind in (None, key.type)]
        return result_of({"services": services})

    async def _discover(self, given: Arguments) -> dict[str, Any]:
        if given.get("type") not in SERVICE_TYPES:
            raise ValueError(f"type is one of {', '.join(sorted(SERVICE_TYPES))}")
        found = await collect(self._discovery, given["type"], _text(given, "name"))
        begin = _number(given, "offset", 0)
        return result_of({"services": [shown(one) for one in found[begin : begin + _number(given, "limit", 20)]]})

    async def _find(self, given: Arguments) -> dict[str, Any]:
        providers = await collect(self._discovery, "mcp", _text(given, "service_name"))
        if text := _text(given, "peer_id"):
            peer = self._peer(text)
            providers = [one for one in providers if one.peer == peer]
        room, found = trio.CapacityLimiter(MAX_ASKED_AT_ONCE), list[dict[str, Any]]()

        async def look(provider: Provider) -> None:
            async with room:
                found.extend(await self._tools_of(provider, _text(given, "tool_name")))

        async with trio.open_nursery() as nursery:
            for provider in providers:
                nursery.start_soon(look, provider)
        return result_of({"tools": sorted(found, key=lambda one: (one.get("tool_name", ""), one["peer_id"]))})

    async def _tools_of(self, provider: Provider, wanted: str | None) -> list[dict[str, Any]]:
        """Its tools, or one entry that says why there are none."""
        about = {"peer_id": str(provider.peer), "service_name": provider.service.name}
        try:
            with trio.fail_after(SERVICE_TIMEOUT):
                async with self._node.http_client2() as client, open_session(client, provider) as session:
                    tools = await session.tools()
        except (ServiceError, trio.TooSlowError) as exc:
            return [{**about, "error": str(exc) or "it took too long"}]
        prefix = f"{SCHEME}{provider.service.name}/"
        named = [(f"{prefix}{tool.get('name')}", tool) for tool in tools]
        return [
            {**about, "tool_name": name, "description": tool.get("description", "")}
            for name, tool in named
            if wanted is None or wanted in (name, tool.get("name"))
        ]

    async def _describe(self, given: Arguments) -> dict[str, Any]:
        provider, name = self._tool(given)
        async with (
            self._node.http_client2(timeout=SERVICE_TIMEOUT) as client,
            open_session(client, provider) as session,
        ):
            for tool in await session.tools():
                if tool.get("name") == name:
                    return result_of({"peer_id": str(provider.peer), **tool, "tool_name": given["tool_name"]})
        raise ValueError(f"{provider.service} of {provider.peer} has no tool {name!r}")

    async def _call(self, given: Arguments) -> dict[str, Any]:
        provider, name = self._tool(given)
        labels = _labels(given)
        async with (
            self._node.http_client2(timeout=CALL_TIMEOUT, headers=labels) as client,
            open_session(client, provider) as session,
        ):
            arguments: object = given.get("arguments") or {}
            if not isinstance(arguments, dict):
                raise ValueError("arguments is no object")
            return await session.call(name, cast("dict[str, Any]", arguments))

    def _tool(self, given: Arguments) -> tuple[Provider, str]:
        tool = _text(given, "tool_name") or ""
        service, slash, name = tool.removeprefix(SCHEME).partition("/")
        if not tool.startswith(SCHEME) or not (service and slash and name):
            raise ValueError(f"{tool!r} is no mcp://<service>/<tool>")
        return Provider(self._peer(_text(given, "peer_id") or ""), ServiceKey("mcp", service)), name

    def _peer(self, text: str) -> PeerId:
        try:
            peer = PeerId.parse(text)
        except AddressError as exc:
            raise ValueError(f"{text!r} is no peer ID") from exc
        if peer == self._node.peer:
            raise ValueError("that is this node itself")
        return peer


def _text(given: Arguments, name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value or None


def _labels(given: Arguments) -> dict[str, str]:
    """A header by which the mesh calls only a member that has one of the labels."""
    labels: object = given.get("required_labels") or {}
    if not isinstance(labels, dict):
        raise ValueError("required_labels is no object")
    pairs = [f"{key}={value}" for key, value in cast("dict[str, object]", labels).items()]
    if any("," in pair or not pair.isprintable() for pair in pairs):
        raise ValueError("required_labels has a label that is none")
    return {LABELS_HEADER.decode(): ", ".join(pairs)} if pairs else {}


def _number(given: Arguments, name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is no number from 0")
    return value


FAULTS = (ValueError, ServiceError, DialError, trio.TooSlowError)
