"""PROF: its rules and their mutants."""
