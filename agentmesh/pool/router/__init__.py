"""A router's side of the pool: connections registered, chosen for each stream, let go.

table       the connections: who claims to be one (claims), within what (limits), and what was written down (audit)
connection  one of them: its streams, and how well it does (health)
selection   which of them a stream gets, by what it costs there (score), and why (trace)
opening     streams opened (leased), and opened elsewhere when that failed (retrying)
service     serves agents' connections, each with its session (attached); metadata is what they tell of themselves
listing     lists them in the registry of the cluster
views       what is shown of them; invariants is what has to hold
"""
