"""QMG: its rules and their mutants."""
