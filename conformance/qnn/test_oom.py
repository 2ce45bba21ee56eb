"""OOM: the system refuses what a backend asks for."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
