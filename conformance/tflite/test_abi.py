"""ABI: the interface between a runtime and an external delegate library."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
