"""What is done to delegates, as immutable data. No ctypes."""
