"""What to do, as immutable data, and the strategies that generate it. No ctypes."""
