"""NOM: its rules and their mutants."""
