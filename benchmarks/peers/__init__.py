"""Programs for environments that are not ours: they import what is not installed here, so no type checker reads them.

py_libp2p   members and a relay of py-libp2p: a worker of `python -m benchmarks`, run by the Python of `.venv-peers`
agentmesh   members and a router of ours, for a bench of peers that has `benchlib`
"""
