"""What one example costs, as ratios against the bare floor of the same run.

    python -m benchmarks [--quick]

Delegates, per runtime and number of nodes: draw a case, build the model, run it, judge it, and the whole
example through the engine, in process and in a child; the floor is the runtime alone on a prebuilt model
(create, modify with a claim of nothing but bare callbacks, allocate, invoke). Memory: a generated sequence
through the whole way, and the same sequence as bare ctypes calls. Figures are medians in microseconds.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import delegates, memory


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=["delegates", "memory"], help="one half only")
    arguments = parser.parse_args()
    if arguments.only != "memory":
        delegates.report(sys.stdout, quick=arguments.quick)
    if arguments.only != "delegates":
        memory.report(sys.stdout, quick=arguments.quick)


if __name__ == "__main__":
    main()
