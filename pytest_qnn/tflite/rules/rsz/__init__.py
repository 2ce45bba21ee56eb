"""RSZ: its rules and their mutants."""
