"""DET: outputs are a function of the inputs."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
