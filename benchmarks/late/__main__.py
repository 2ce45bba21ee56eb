"""``python -m benchmarks.late``."""

from benchmarks.late import main

main()
