"""TensorFlow Lite delegates: what judges a delegate. Knows nothing of QNN, but for `qnn_delegate`."""
