"""What must happen, as pure Python. No ctypes."""
