"""ERR: its rules and their mutants."""
