"""A pytest plugin and conformance suite for TensorFlow Lite delegates and the QNN memory APIs."""
