"""`python -m agentmesh.bench` is a process of members, for whoever started it."""

from agentmesh.bench.worker import main

if __name__ == "__main__":
    main()
