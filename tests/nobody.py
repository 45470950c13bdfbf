"""Programs run by a user with no rights of its own: modes mean nothing to a superuser, as whom tests often run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOBODY = 65534
_ROOT = Path(__file__).parent.parent


def run_as_nobody(first: str, then: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``first``, give up all rights, and run ``then``; ``sys.argv[1:]`` are the arguments.

    What ``then`` imports must have been imported by ``first``, as it may be out of reach later. Somebody without rights
    stays who he is.
    """
    drop = f"import os\nif os.geteuid() == 0: os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
    program = "\n".join(["import sys", first, drop, then])
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=_ROOT, env=os.environ, capture_output=True, text=True
    )
