"""What the mesh costs, measured beside what else moves bytes: `python -m benchmarks`.

cli         the command line; options: what its commands share; progress: what is seen meanwhile
figures     the scenarios and what is reported of them
run         all of a run; measure: one scenario
growth      how cost grows with size
stacks/     ours and the baselines: the programs, and how they are started
traffic     what a caller and a server do over streams; crowd: many members in one process
commands    being a worker; processes: having workers
results     what was found, in JSON; summary: its statistics; machine: where
tables      for the terminal and in Markdown; charts: PNG and SVG
control_plane  by itself: what a control plane bears, `python -m benchmarks.control_plane`
peers/      programs for environments that are not ours
"""
