"""DOM: its rules and their mutants."""
