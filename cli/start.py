"""The console script: little is imported here, as a signal during that would end in a traceback."""

import os
import signal


def main() -> None:
    """Run the command line. Until it watches for signals, Ctrl-C ends the process at once and without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .app import main as run

    try:
        run()
    except SystemExit as leaving:
        if leaving.code in (130, 143):
            # What libraries do at the end was seen to print tracebacks after an interruption, and to change the code.
            os._exit(leaving.code)
        raise
