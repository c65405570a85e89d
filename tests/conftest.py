"""What holds for every test.

Hypothesis counts examples and not milliseconds, since machines are busy at times. A proxy of this machine's is for the
set-up before: no test reaches beyond this machine.
"""

import os

from hypothesis import settings

settings.register_profile("mesh", deadline=None)
settings.register_profile("mesh-ci", parent=settings.get_profile("ci"), deadline=None)
settings.load_profile("mesh-ci" if os.environ.get("CI") else "mesh")

for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]
