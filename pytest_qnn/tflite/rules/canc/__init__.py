"""CANC: its rules and their mutants."""
