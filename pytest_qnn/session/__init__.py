"""One pytest run: its state, its verdicts, the findings that it leaves, cases replayed."""
