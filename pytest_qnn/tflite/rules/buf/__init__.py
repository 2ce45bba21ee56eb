"""BUF: its rules and their mutants."""
