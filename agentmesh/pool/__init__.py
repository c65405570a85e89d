"""A logical agent's connections: one identity, many processes, many connections, and streams balanced over them.

agent         an agent's process: how many connections it has, and what is opened on them
router        a router's side: connections registered, chosen for each stream, let go
registry      which router serves which connection, kept where every router sees it
copying       bytes both ways
metrics       what both sides show
admin_client  what operators' programs ask a router with
"""
