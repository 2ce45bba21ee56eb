"""Targets with exactly one fault each, and the rules that must find it."""
