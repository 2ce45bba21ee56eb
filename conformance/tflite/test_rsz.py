"""RSZ: the inputs of a delegated graph are resized."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
