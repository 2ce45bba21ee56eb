"""What one example costs, as ratios against the bare floor of the same run.

    python -m benchmarks [--quick] [--only models|delegates|memory]

Models: the writer of .tflite files against the schema bindings.

Delegates, per runtime and number of nodes: draw a case, build the model, run it, judge it, and the whole
example through the engine, in this process and in a child. The floor is the runtime alone on a prebuilt
model: create, modify with a delegate whose callbacks do nothing, allocate, invoke.

Memory: a sequence of calls on the reference through the whole way, and the same calls made by hand.

Figures are medians in microseconds (draw, whole and isolated: means over all examples).
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import delegates, memory, models


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=["models", "delegates", "memory"], help="one table only")
    arguments = parser.parse_args()
    for name, part in (("models", models), ("delegates", delegates), ("memory", memory)):
        if arguments.only in (None, name):
            part.report(sys.stdout, quick=arguments.quick)


if __name__ == "__main__":
    main()
