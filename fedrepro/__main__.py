"""`python -m fedrepro` is the command `fedrepro`."""

from __future__ import annotations

import sys

from fedrepro.cli import main

if __name__ == "__main__":
    sys.exit(main())
