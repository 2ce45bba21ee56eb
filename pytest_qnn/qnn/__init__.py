"""QNN memory: what judges a QNN backend. Knows nothing of TensorFlow Lite."""
