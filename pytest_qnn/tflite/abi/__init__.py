"""C layouts of TensorFlow Lite, declared once. No behaviour."""
