"""IF: its rules and their mutants."""
