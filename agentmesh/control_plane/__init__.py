"""The control plane: who may be in the mesh, what their credentials say, and which routers are up.

    config       what an operator sets
    schema       the tables
    store        the database: every change of state is one conditional statement, in a worker thread
    enrollment   what becomes of an enrollment: a table of status and input
    proof        proof that a caller holds the key of the peer it names
    tokens       bootstrap tokens
    members      enrollment, refresh, approval
    leases       which routers are up
    app          the HTTP interface, with its admin part in admin
    server       serves the app on a socket
    client       what members and routers call it with

The client imports nothing of the server's side.
"""
