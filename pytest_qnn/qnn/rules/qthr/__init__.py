"""QTHR: its rules and their mutants."""
