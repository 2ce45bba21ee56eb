"""The delegate rules: a folder for each area, with its rules, what generates their cases, and its mutants."""
