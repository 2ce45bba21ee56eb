"""MSC: its rules and their mutants."""
