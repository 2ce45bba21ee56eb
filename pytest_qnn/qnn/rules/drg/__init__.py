"""DRG: its rules and their mutants."""
