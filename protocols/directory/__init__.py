"""The directory, `/mesh/directory/1.0.0`: who serves what, and where a peer is. A router keeps it, members ask."""
