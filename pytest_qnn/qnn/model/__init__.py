"""What must happen to a QNN backend, as pure Python. No ctypes."""
