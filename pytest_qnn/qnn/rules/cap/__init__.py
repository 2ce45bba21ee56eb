"""CAP: its rules and their mutants."""
