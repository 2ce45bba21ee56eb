"""Certification: what a release demands, the folder that a run leaves, and its judgement without the target."""
