"""CTX: its rules and their mutants."""
