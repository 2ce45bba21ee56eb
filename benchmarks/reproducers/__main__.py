"""``python -m benchmarks.reproducers``."""

import sys

from benchmarks.reproducers import main

sys.exit(main())
