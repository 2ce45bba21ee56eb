"""LEAK: its rules and their mutants."""
