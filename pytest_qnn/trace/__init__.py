"""Trace: what was seen, as immutable data. It crosses processes as MessagePack."""

from __future__ import annotations

from pytest_qnn.core.target import Death
from pytest_qnn.trace.delegate import Applied, DelegateTrace, Twin
from pytest_qnn.trace.memory import MemoryTrace, StepSeen
from pytest_qnn.trace.plugin import LibrarySeen, PluginSeen, PluginTrace, StructSeen
from pytest_qnn.trace.script import (
    BufferCall,
    BufferFunctions,
    Handled,
    InterpreterSeen,
    ScriptSeen,
    ScriptTrace,
    Touch,
)
from pytest_qnn.trace.seen import Borrow, Event, Kernel, PlanNode, Replace, Write
from pytest_qnn.trace.spied import Added, Asked, Call, Change, During, Name, Preview, Report, Spied

__all__ = [
    "Added",
    "Applied",
    "Asked",
    "Borrow",
    "BufferCall",
    "BufferFunctions",
    "Call",
    "Change",
    "Death",
    "DelegateTrace",
    "During",
    "Event",
    "Handled",
    "InterpreterSeen",
    "Kernel",
    "LibrarySeen",
    "MemoryTrace",
    "Name",
    "PlanNode",
    "PluginSeen",
    "PluginTrace",
    "Preview",
    "Replace",
    "Report",
    "ScriptSeen",
    "ScriptTrace",
    "Spied",
    "StepSeen",
    "StructSeen",
    "Touch",
    "Twin",
    "Write",
]
