"""RUN: its rules and their mutants."""
