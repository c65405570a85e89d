"""A logical agent's connections: one identity, many processes, many connections, and streams balanced over them.

registry    which router serves which connection, kept where every router sees it
table       the connections of one router: registered, fenced, limited, ended
selection   which of them a stream gets
controller  how many connections an agent's process has
access      what an agent's streams may reach
agent       an agent's process: its connections, and what is opened on them
service     a router's side: connections registered, streams opened (opening)
"""
