"""What one example costs, as ratios against the bare floor of the same run.

    python -m benchmarks [--quick] [--only models|delegates|memory|isolation|visits]

Models: the writer of .tflite files against the schema bindings.

Delegates, per runtime and number of nodes: draw a case, build the model, run it, judge it, and the whole
example through the engine, in this process and in a child. The floor is the runtime alone on a prebuilt
model: create, modify with a delegate whose callbacks do nothing, allocate, invoke.

Memory: a sequence of calls on the reference through the whole way, and the same calls made by hand.

Isolation: a case in a child (forked, spawned) against the same case in this process, for the reference
delegate, the native one of examples/delegate_repo (with gcc) and the reference memory backend.

Visits: the files of the package that one example of a rule goes through, and the moves between them.

Figures are medians in microseconds (draw, whole and isolated: means over all examples; isolation:
milliseconds).
"""

from __future__ import annotations

import argparse
import sys
from types import ModuleType

from benchmarks import delegates, isolation, memory, models, visits

PARTS: dict[str, ModuleType] = {
    "models": models,
    "delegates": delegates,
    "memory": memory,
    "isolation": isolation,
    "visits": visits,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=list(PARTS), help="one table only")
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            part.report(sys.stdout, quick=arguments.quick)


if __name__ == "__main__":
    main()
