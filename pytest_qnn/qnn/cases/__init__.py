"""What is done to a QNN backend, as immutable data. No ctypes."""
