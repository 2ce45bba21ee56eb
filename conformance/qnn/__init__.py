"""Rules about QNN memory."""
