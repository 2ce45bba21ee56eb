"""Explaining a rule."""
