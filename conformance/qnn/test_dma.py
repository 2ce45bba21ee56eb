"""DMA: memory of type QNN_MEM_TYPE_DMA_BUF."""

from pytest_qnn.conformance import rule_tests

globals().update(rule_tests(__name__, __file__))
