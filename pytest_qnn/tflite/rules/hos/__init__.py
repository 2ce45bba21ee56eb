"""HOS: its rules and their mutants."""
