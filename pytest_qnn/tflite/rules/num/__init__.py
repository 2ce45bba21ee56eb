"""NUM: its rules and their mutants."""
