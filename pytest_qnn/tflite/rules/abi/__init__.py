"""ABI: its rules and their mutants."""
