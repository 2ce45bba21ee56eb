"""Measure the kill table and print it: ``python -m pytest_qnn.mutants > docs/mutants.md``."""

from __future__ import annotations

import sys

from pytest_qnn.kills import main

if __name__ == "__main__":
    sys.exit(main())
