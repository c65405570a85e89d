"""What a router has to do with agents' connections, and what an operator sees of them.

judging   which agent a session is, and what a client may reach
others    the other routers, and streams by way of them
agents    all of it together, for the composition of a router
events    what befalls connections: to the log, and to who listens
admin     the admin API behind its token; api has its pages (lookup, problems), stream the events as they happen
"""
