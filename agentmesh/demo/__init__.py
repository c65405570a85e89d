"""`agentmesh demo`: a whole mesh as real processes on loopback, moving real files and calling a real tool.

story                    what is done with the mesh, and what must hold
mesh                     raising it: six processes, up to the moment when every member holds its routers
processes, child         starting programs, watching them, leaving none behind
provider, reader, agent  the three members, each a program; member: what they share
reports                  what members say on standard output, a JSON object a line
view, screen, scene      what is shown: events, the picture, and the values behind it
"""
