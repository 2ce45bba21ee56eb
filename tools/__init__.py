"""Commands for those who work on pytest-qnn."""
