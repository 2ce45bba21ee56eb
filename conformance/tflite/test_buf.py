"""BUF: results that a delegate keeps in buffers of its device."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
