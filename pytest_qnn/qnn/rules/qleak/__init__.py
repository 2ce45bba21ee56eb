"""QLEAK: its rules and their mutants."""
