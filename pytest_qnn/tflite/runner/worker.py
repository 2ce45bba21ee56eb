"""A loaded chain of delegates on one runtime."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pytest_qnn.isolation.observe.control_words import put_back
from pytest_qnn.isolation.worker import ASKED, Depth, MayEndError, OnStep, Unusable
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.domain import CellsBeside, DomainCase
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.runner import learn
from pytest_qnn.tflite.runner.custom_buffers import offering
from pytest_qnn.tflite.runner.delegates import (
    DelegateFactory,
    DelegateUnusable,
    NoDelegate,
    delegate_factory,
    is_steerable,
    is_unloadable,
    known_options,
    why_broken,
)
from pytest_qnn.tflite.runner.domain import is_on_cpu, run_beside, run_domain_case
from pytest_qnn.tflite.runner.plain import PLAIN
from pytest_qnn.tflite.runner.plugin.library import NoInterface, open_plugin
from pytest_qnn.tflite.runner.plugin.run import run_plugin_case
from pytest_qnn.tflite.runner.qnn_interface import BACKEND_TYPE
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runner.script import run_script_case, warm_up_script
from pytest_qnn.tflite.runner.spec import (
    CODEC,
    LEARN_LIMITS,
    LEARN_SAMPLES,
    LEARN_SECONDS,
    PROBE,
    DelegateSpec,
)
from pytest_qnn.tflite.runtime.runtime import RuntimeMissing, load_runtime

WARMING: Final = DelegateCase(PLAIN.graph, (Application("probe", claim=(0, 2, 3, 6, 8, 9, 11)),))
"""The suite's own delegate takes some of the nodes; the runtime's kernels compute all of them once."""

_WARMING = CODEC.request_of(WARMING)


class DelegateWorker:
    """Carries out delegate cases.

    Raises:
        Unusable: the runtime is missing, or a delegate cannot be used.

    """

    def __init__(self, spec: DelegateSpec) -> None:
        try:
            self._runtime = load_runtime(spec.runtime)
            self._chain = [delegate_factory(name, options, self._runtime) for name, options in spec.delegates]
            self._spec = spec
        except (DelegateUnusable, RuntimeMissing) as error:
            raise Unusable(str(error)) from None
        self._names = tuple(name for name, _ in spec.delegates)
        self.careful = False

    def facts(self, depth: Depth = "all") -> DelegateFacts:
        """Learn what the chain is, and with ``all`` that each of its delegates can be made."""
        unusable = next(filter(None, map(why_broken, self._chain)), "")
        unloadable = any(map(is_unloadable, self._chain))
        custom = offering(self._chain)
        own = next((at for at, one in enumerate(self._chain) if getattr(one, "has_own_interface", False)), -1)
        registers: bool | None = None
        try:
            for position, factory in enumerate(self._chain if depth == "all" and not unusable else ()):
                live = factory.make(Application())
                if position == custom and hasattr(live, "registers"):
                    registers = live.registers()
                live.close()
        except DelegateUnusable as error:
            if not isinstance(error, NoDelegate) or any(options for _, options in self._spec.delegates):
                raise Unusable(str(error)) from None
            unusable = str(error)  # nobody gave it options that could be at fault
        return DelegateFacts(
            runtime=self._runtime.name,
            runtime_version=self._runtime.version,
            delegates=self._names,
            steerable=all(map(is_steerable, self._names)),
            observed=self._runtime.observed,
            options=tuple(known_options(name, options) for name, options in self._spec.delegates),
            needs_options=any(options for _, options in self._spec.delegates),
            unusable=unusable,
            unloadable=unloadable,
            custom_memory=custom,
            own_interface=own,
            backend_type="" if own < 0 else getattr(self._chain[own], "options", {}).get(BACKEND_TYPE, ""),
            registers=registers,
        )

    def warm(self) -> None:
        """Run our own code once, so that a case finds every cache filled. No delegate under test is made."""
        self.rehearse()
        script = CODEC.case_of(CODEC.request_of(warm_up_script(WARMING.graph)))
        msgspec.msgpack.encode(run_script_case(script, (), self._runtime, self._remake))
        with contextlib.suppress(OSError):
            # What creating a plugin makes the loader do, and no library: it looks at every loaded one.
            ctypes.CDLL("/")
        for factory in self._chain:
            with contextlib.suppress(NoInterface, OSError, ValueError):
                open_plugin(factory, self._runtime)  # reads the symbols of its file; nothing of it is called

    def rehearse(self) -> None:
        """Carry out a case without the delegates under test."""
        case = CODEC.case_of(_WARMING)
        msgspec.msgpack.encode(run_delegate_case(case, (), self._runtime))

    def probe(self, question: learn.Question, on_step: OnStep | None = None) -> list[str]:
        """What the chain does with models of one node."""
        return learn.answer(question, self._chain, self._runtime, on_step)

    def limits(self) -> dict[str, str]:
        """Which of the known options that limit partitions the chain has (`DelegateFacts.limits`)."""
        return learn.learn_limits(self._chain)

    def run(self, case: Any, on_step: OnStep | None = None) -> Any:
        """Carry out one case, of any kind that concerns delegates; its trace."""
        put_back()
        if isinstance(case, DelegateCase):
            return run_delegate_case(case, self._chain, self._runtime, on_step)
        if isinstance(case, PluginCase):
            _, options = self._spec.delegates[min(case.delegate, len(self._chain) - 1)]
            given = tuple((key.encode(), value.encode()) for key, value in options.items())
            return run_plugin_case(case, self._chain, self._runtime, on_step, given)
        if isinstance(case, DomainCase):
            on_step = on_step or (_leave_to_child if self.careful else None)
            return run_domain_case(case, self._chain, self._runtime, on_step)
        if isinstance(case, CellsBeside):
            return run_beside(case, self._chain, self._runtime, on_step)
        return run_script_case(case, self._chain, self._runtime, self._remake, on_step)

    def _remake(self, position: int, options: Mapping[str, str]) -> DelegateFactory:
        """The factory of one delegate of the chain, with further options."""
        name, given = self._spec.delegates[position]
        return delegate_factory(name, {**given, **options}, self._runtime)

    def accompany(self, request: bytes) -> None:
        """Nothing: what is expensive about delegates is made for each case."""

    def handle(self, request: bytes, on_step: OnStep) -> bytes:
        """Facts or trace as MessagePack."""
        if request in ASKED:
            return msgspec.msgpack.encode(self.facts(ASKED[request]))
        if request == LEARN_LIMITS:
            return msgspec.msgpack.encode(self.limits())
        if request == LEARN_SAMPLES:
            return msgspec.msgpack.encode(learn.learn_samples(self._chain, self._runtime))
        if request == LEARN_SECONDS:
            return msgspec.msgpack.encode(learn.learn_seconds(self._chain, self._runtime))
        if request.startswith(PROBE):
            question = msgspec.msgpack.decode(request[len(PROBE) :], type=learn.Question)
            return msgspec.msgpack.encode(self.probe(question, on_step))
        return msgspec.msgpack.encode(self.run(CODEC.case_of(request), on_step))


def _leave_to_child(step: int) -> None:
    """Some kernels of the runtimes end the process, which must not be pytest's."""
    if is_on_cpu(step):
        raise MayEndError


def make_ready(ahead: str) -> None:
    """Load this runtime, and carry out what a worker does to be warm, without delegates.

    Raises:
        Unusable: the runtime is missing.
    """
    DelegateWorker(DelegateSpec((), ahead)).warm()


def make(content: bytes) -> DelegateWorker:
    """From a `DelegateSpec` as JSON. Raises Unusable."""
    return DelegateWorker(msgspec.json.decode(content, type=DelegateSpec))
