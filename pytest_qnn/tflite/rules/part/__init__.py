"""PART: its rules and their mutants."""
