"""The runtime: hosts, sessions, streams, the protocol registry and the connection manager.

It knows no protocol and no transport by name; both are values given to `open_host`.
"""
