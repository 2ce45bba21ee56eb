"""OOM: its rules and their mutants."""
