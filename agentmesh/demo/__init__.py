"""`agentmesh demo`: a whole mesh as real processes on loopback, moving real files and calling a real tool.

story      what happens, in order, and what must hold
processes  starting programs, reading what they report, leaving none behind
reports    what members say on standard output, a JSON object a line
members    the programs of the three members
view       the table that shows it live
"""
