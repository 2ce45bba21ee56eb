"""Carries QNN cases out: the only part of this half that touches a target."""
