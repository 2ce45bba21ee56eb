"""ION: its rules and their mutants."""
