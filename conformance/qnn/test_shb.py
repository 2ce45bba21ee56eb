"""SHB: several tensors in one shared buffer, each at an offset of its own."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
