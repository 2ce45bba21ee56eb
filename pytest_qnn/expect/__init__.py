"""Known failures: the file of ``--qnn-expect``, and the command that writes it from reports."""
