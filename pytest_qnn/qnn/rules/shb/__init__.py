"""SHB: its rules and their mutants."""
