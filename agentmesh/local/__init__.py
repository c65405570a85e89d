"""The local API: the mesh for programs of this machine in any language, over HTTP on a Unix socket or a port.

    /mesh/<peer>/<type>/<name>/…    any service of any member                       proxy
    /v1/models /v1/completions /v1/chat/completions    all models of the mesh        openai
    /mcp                            six tools for agents                            mcp, tools, remote_tools
    /mesh/service/discover          who serves what                                 discover
    /healthz /readyz /metrics /debug/…                                              agentmesh.node.pages

providers    who serves what, by name
asking       what the node asks other members itself
models       which models there are, and where
serving      HTTP for programs of this machine; listening: where
api          all of it together
"""

from agentmesh.local.api import LocalApi, LocalConfig, serve_local_api

__all__ = ["LocalApi", "LocalConfig", "serve_local_api"]
