"""Certification: what a release demands, the folder that a run leaves, its judgement without the target."""
