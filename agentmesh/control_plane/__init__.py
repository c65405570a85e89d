"""The control plane: who may be in the mesh, what their credentials say, and which routers are up.

Its side of the wire:

    config       what an operator sets
    records      what is remembered, as values
    schema       the tables; rows: values from and to their rows
    database     an engine, worker threads, transactions
    queries      the SQL: every change of state is a conditional statement
    store        what the rest asks and changes
    enrollment   what becomes of an enrollment: a table of status and input
    labels       which labels there may be
    proof        that a caller holds the key of the peer it names
    authority    the signing keys and what is signed with them
    tokens       bootstrap tokens
    members      enrollment and refresh; approvals: what an admin decides
    leases       which routers are up
    ratelimit    a token bucket
    app          the HTTP interface, its admin part in admin; http, middleware, metrics, refusals: what it is made of
    serving      an ASGI app on a socket
    server       all of it together

Its callers' side, which imports nothing of the above:

    client       what members and routers call it with; admin_client: what an admin's programs do
    exchange     one signed request and its answer; backoff: for how long it is tried
    routers      routers as they are listed; vouching: whether to believe a set of keys
    errors       what a call can end in
    bind_address where a server listens, as text
"""
