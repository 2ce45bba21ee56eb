"""``python -m benchmarks.blame``."""

from __future__ import annotations

from benchmarks.blame import main

if __name__ == "__main__":
    main()
