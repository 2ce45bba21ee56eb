"""EXT: its rules and their mutants."""
