"""Carries delegate cases out: the only part of this half, with `observe`, that touches a target."""
