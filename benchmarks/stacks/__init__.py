"""What is measured side by side.

stack        what a stack is, and running its processes
known        ours and the baselines
mesh, plane  agentmesh: a worker, and its control plane
plain        TCP and TLS: a worker; certificate: for its TLS
haproxy      the relay that both can go through: a worker
"""
