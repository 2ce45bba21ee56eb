"""The input domain: models of one node over operators, types, ranks, sizes, activations and quantisation.

A cell is one such model. `table` lists the operators and their cells; each family of operators has a file
that says what its models consist of and what they compute, in numpy. No ctypes.
"""
