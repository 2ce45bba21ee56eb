"""CTRL: its rules and their mutants."""
