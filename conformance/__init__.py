"""The conformance suite: a module per area, a test per rule, named after it."""
