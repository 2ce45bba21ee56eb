"""DET: its rules and their mutants."""
