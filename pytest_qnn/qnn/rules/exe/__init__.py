"""EXE: its rules and their mutants."""
