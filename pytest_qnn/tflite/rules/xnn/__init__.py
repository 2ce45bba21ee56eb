"""XNN: its rules and their mutants."""
