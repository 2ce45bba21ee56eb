"""THR: its rules and their mutants."""
