"""Run the command `fedrepro`, also as `python -m fedrepro`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command on the arguments of this process; return the exit status.

    The modules of the command are imported here, so that an interrupt during the imports is told in one line, too.
    """
    try:
        from fedrepro.cli import main as command
    except KeyboardInterrupt:
        print("fedrepro: interrupted before it began", file=sys.stderr)
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
