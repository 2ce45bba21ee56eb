"""Verdicts to terminal and files."""
