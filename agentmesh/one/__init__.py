"""A mesh in one process, for a laptop or a test: a control plane on SQLite and a router. Members join it as any
other.
"""

from agentmesh.one.one import One, OneConfig, open_one

__all__ = ["One", "OneConfig", "open_one"]
