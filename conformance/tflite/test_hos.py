"""HOS: models that a client should never have sent."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
