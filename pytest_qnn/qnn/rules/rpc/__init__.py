"""RPC: its rules and their mutants."""
