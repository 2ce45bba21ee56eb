"""PREC: its rules and their mutants."""
