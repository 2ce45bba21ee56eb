"""PRE: what IO tensors may come with when they are created."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
