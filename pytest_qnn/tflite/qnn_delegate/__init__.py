"""The delegate that runs on QNN: the only package that knows both halves."""
