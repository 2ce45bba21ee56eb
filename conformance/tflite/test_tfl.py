"""TFL: custom memory of a QNN delegate, and tensors in it."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
