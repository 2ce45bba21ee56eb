"""OWN: its rules and their mutants."""
