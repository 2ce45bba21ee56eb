"""DYN: tensors whose shapes are known only while the graph runs."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
