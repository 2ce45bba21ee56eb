"""REG: its rules and their mutants."""
