"""An agent's process: its connections, and what is opened on them.

config      what it is told
instance    which process this is
controller  when to dial, when to let go: with the dials under way (dials) and the number to have (scaler, scaling),
            it gives orders (orders)
sampling    what one connection has to bear
agent       the connections themselves, each with its streams (link)
serving     opens answered, by way of the rules (access) to their targets (targets)
"""
