"""QMG: the table of preparing and executing with raw memory and memory handles."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
