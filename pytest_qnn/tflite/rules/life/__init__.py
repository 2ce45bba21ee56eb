"""LIFE: its rules and their mutants."""
