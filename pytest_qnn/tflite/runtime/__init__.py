"""The TensorFlow Lite runtimes: what they export, and what their interpreters hold."""
