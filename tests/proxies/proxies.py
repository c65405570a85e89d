"""nginx and HAProxy, as docs/proxies.md tells people to set them up."""

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.servers.server import run_server

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGE = DOCS / "proxies.md"


def read_blocks(page: Path) -> dict[str, str]:
    """The files of a page, by what their first lines call them."""
    return {name: text for text, name in re.findall(r"```(?:nginx|haproxy)\n(# (.+)\n[^`]*)```", page.read_text())}


BLOCKS = read_blocks(PAGE)
AGENT_BLOCKS = read_blocks(DOCS / "agent.md")
NGINX_FILE = "/etc/nginx/conf.d/agentmesh.conf"
NGINX_AGENTS_FILE = "/etc/nginx/conf.d/agents.conf"
HAPROXY_HTTP_FILE = "/etc/haproxy/haproxy.cfg, ending TLS"
HAPROXY_TCP_FILE = "/etc/haproxy/haproxy.cfg, passing TLS on"

NGINX_MAIN = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log stderr;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {more}
    include {folder}/agentmesh.conf;
}}
"""


Changes = Mapping[str, str]


def configuration(name: str, changes: Changes) -> str:
    """A file of the pages, with what differs here. Each change has to find something to change."""
    text = {**BLOCKS, **AGENT_BLOCKS}[name]
    for old, new in changes.items():
        assert old in text, f"{name} in docs does not say {old}"
        text = text.replace(old, new)
    return text


@asynccontextmanager
async def run_nginx(
    folder: Path, port: int, changes: Changes, more: str = "", file: str = NGINX_FILE
) -> AsyncGenerator[trio.Process]:
    """nginx with one of the pages' files, for the length of the block.

    Args:
        folder: for its files.
        port: what it listens on.
        changes: to that file.
        more: settings around it.
    """
    user = "user root;" if os.geteuid() == 0 else ""  # who else may see the folder?
    (folder / "nginx.conf").write_text(NGINX_MAIN.format(folder=folder, user=user, more=more))
    (folder / "agentmesh.conf").write_text(configuration(file, {"listen 443": f"listen 127.0.0.1:{port}", **changes}))
    async with run_server(
        ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")], port
    ) as process:
        yield process


@asynccontextmanager
async def run_haproxy(
    file: str, folder: Path, port: int, changes: Changes, *arguments: str
) -> AsyncGenerator[trio.Process]:
    """HAProxy with one of the page's files, for the length of the block. `arguments` are further ones of its own."""
    written = folder / f"haproxy-{port}.cfg"
    written.write_text(configuration(file, {"bind :443": f"bind 127.0.0.1:{port}", **changes}))
    async with run_server(["haproxy", "-db", "-f", str(written), *arguments], port) as process:
        yield process
