"""DYN: its rules and their mutants."""
