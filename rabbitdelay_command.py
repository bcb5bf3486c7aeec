"""The command `rabbitdelay`, as a module outside the package: its imports take a third of a second.

A Ctrl-C meanwhile ends the process as it ends any other program, and not with a traceback.
"""

import signal


def main() -> None:
    """Import the command line, and run it."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rabbitdelay.cli import main as run  # noqa: PLC0415 - the point of this file

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
