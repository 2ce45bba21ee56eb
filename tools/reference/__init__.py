"""Pages of docs/reference that are made from the code: ``python -m tools.reference``."""
