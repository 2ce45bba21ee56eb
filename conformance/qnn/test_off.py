"""OFF: context binaries, and the graphs that come out of them."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
