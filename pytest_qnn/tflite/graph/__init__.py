"""Graphs as immutable data: decoded from bytes, checked, and written as .tflite models. No ctypes."""
