"""OFF: its rules and their mutants."""
