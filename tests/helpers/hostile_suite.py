"""One half of the conformance suite on a hostile target, in a process of its own, and what became of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
from hostile import began_with
from reports import judged_rules

HERE = Path(__file__).parent
SEED = 1
ROOM_TO_GROW = 64 << 20
"""Bytes by which hostile targets may let the process that judges them grow."""


class Judged(NamedTuple):
    """What a run left."""

    document: dict[str, Any]
    rules: dict[str, dict[str, Any]]
    """By id; what depends on the clock is left out."""
    witness: dict[str, Any]
    output: str
    seconds: float
    folder: Path

    @property
    def deeds(self) -> dict[str, int]:
        """By rule, how often its cases did the deed, where the deed notes it."""
        return {name[5:].upper().replace("_", "-"): times for name, times in self.witness["came"].items()}

    @property
    def came(self) -> set[str]:
        """Rules whose cases did the deed at all."""
        return {name for name, times in self.deeds.items() if times}

    def of(self, only: str) -> Judged:
        """The same of those rules alone that ``-k`` selects by words with ``or`` between them."""
        words = only.split(" or ")
        tests = {name for name in self.witness["came"] if any(word in name for word in words)}
        came = {name: self.witness["came"][name] for name in tests}
        rules = {name: rule for name, rule in self.rules.items() if _test(name) in tests}
        return self._replace(rules=rules, witness={**self.witness, "came": came})


def suite(folder: Path, *options: str, only: str = "", **environment: str) -> Judged:
    """Run the suite in the empty folder ``folder``, with a note for deeds at ``folder / "note"``.

    Nothing of it is left then: no process, and no file in the folder for temporary ones.
    """
    mark = f"HOSTILE_SUITE={uuid.uuid4()}"
    temporary = folder / "temporary"
    temporary.mkdir()
    name, _, value = mark.partition("=")
    own = {
        name: value,
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH", "")))),
        "WITNESS": str(folder / "witness.json"),
        "DEEDS_NOTED": str(folder / "note"),
        # numpy starts threads when it is imported, which happens with the first rule only.
        "OPENBLAS_NUM_THREADS": "1",
    }
    began = time.monotonic()
    ended = subprocess.run(
        [*_command(only), *options],
        cwd=folder,
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    seconds = time.monotonic() - began
    output = ended.stdout + ended.stderr
    assert (folder / "out.json").exists(), output
    assert began_with(mark) == []
    assert list(temporary.iterdir()) == []
    document = json.loads((folder / "out.json").read_text())
    witness = json.loads((folder / "witness.json").read_text())
    return Judged(document, _rules(document), witness, output, seconds, folder)


def _test(rule_id: str) -> str:
    return f"test_{rule_id.lower().replace('-', '_')}"


def _command(only: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "witness"]
    command += ["--pyargs", "pytest_qnn.conformance", "--qnn-profile=quick", f"--qnn-seed={SEED}"]
    command += ["--qnn-report=out.json"]
    return command + (["-k", only] if only else [])


def _rules(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = judged_rules(document)
    twice = [rule for rule, times in Counter(rule["id"] for rule in found).items() if times > 1]
    assert twice == []
    return {rule["id"]: {key: rule[key] for key in rule if key != "seconds"} for rule in found}


def check_nothing_is_lost(judged: Judged, calm: Judged) -> None:
    """Every rule is in a whole and valid report, and the process that judged is what it was."""
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(judged.document)
    states = {rule["state"] for target in judged.document["targets"] for rule in target["rules"]}
    assert "not_judged" not in states
    assert judged.document["complete"] is (states == {"judged"})
    assert set(calm.rules) <= set(judged.rules)
    added = set(judged.rules) - set(calm.rules)  # owners of what happened, whose tests were not selected
    assert all(judged.rules[name]["found_by"] for name in added)
    assert judged.witness["changed"] == {}
    assert judged.witness["children"] == []
    assert judged.witness["resident"] - calm.witness["resident"] < ROOM_TO_GROW


def check_the_rest_is_judged(judged: Judged, calm: Judged, hit: set[str]) -> None:
    """Rules that are not hit have the verdict, the cases and the examined things of the calm target.

    A delegate whose deed takes long (a gigabyte that is written, threads that compute) has fewer and shorter
    cases: of its rules the verdict alone is the same.
    """
    rest = set(calm.rules) - hit
    slow = {
        rule["id"] for target in judged.document["targets"] if "price" in target for rule in target["rules"]
    }
    differs = {
        name: {
            key: (value, judged.rules[name][key])
            for key, value in calm.rules[name].items()
            # A deed may spoil its process for the cases behind it, which are run again alone.
            if value != judged.rules[name][key] and key != "only_in_company"
            if key == "verdict" or name not in slow
        }
        for name in rest
    }
    said = [f"{name}: {found}" for name, found in sorted(differs.items()) if found]
    assert not said, "\n".join(said)
