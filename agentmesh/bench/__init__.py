"""Many members at once, and what becomes of them: how soon each is ready and makes its first call, and who falls out.

report       what a run found, as JSON has it; several as one
tally        what workers say, as a report (pure)
limits       what the kernel has to allow, before members are started (pure)
member       the life of one member
worker       a process of members
join         all of the processes: the ramp, the hold, the report
summary      reports as distributions
"""

from agentmesh.bench.join import JoinSettings, join
from agentmesh.bench.report import Hold, JoinReport, Member, ReportError, merge

__all__ = ["Hold", "JoinReport", "JoinSettings", "Member", "ReportError", "join", "merge"]
