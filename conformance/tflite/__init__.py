"""Rules about TensorFlow Lite delegates, those that run on QNN (TFL) among them."""
