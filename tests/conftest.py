"""What holds for every test: Hypothesis counts examples and not milliseconds, since machines are busy at times."""

import os

from hypothesis import settings

settings.register_profile("mesh", deadline=None)
settings.register_profile("mesh-ci", parent=settings.get_profile("ci"), deadline=None)
settings.load_profile("mesh-ci" if os.environ.get("CI") else "mesh")
