"""`python -m agentmesh.cli` is `agentmesh`."""

from agentmesh.cli import main

if __name__ == "__main__":
    main(prog_name="agentmesh")
