"""DOM: the cells of the input domain."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
