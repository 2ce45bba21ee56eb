"""SSR: its rules and their mutants."""
