"""`python -m agentmesh.demo.child …` is `agentmesh …` that ends with whoever started it.

The demo holds the other end of its standard input. However the demo ends, that closes, and what it started stops as at
SIGTERM: also when the demo was killed and could stop nothing itself.
"""

import os
import signal
import sys
import threading

from agentmesh.cli import main


def end_with_parent() -> None:
    """Wait, in a thread, until standard input is closed."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    main(prog_name="agentmesh")
