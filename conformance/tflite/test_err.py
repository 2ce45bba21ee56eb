"""ERR: failures, and what they leave behind."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
