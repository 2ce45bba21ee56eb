"""PRE: its rules and their mutants."""
