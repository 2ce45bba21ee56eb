"""Faulty reference backends whose faults start late or hide: they measure how few examples find such faults.

A mutant of `pytest_qnn.qnn.rules` is written for a rule, which must find it. These were written from the
documents alone, without knowledge of the rules, their strategies and their model, so what finds them was not
made for them. No rule has to (``kills`` is empty), and the kill table does not hold them. Each violates what
a document says plainly, named in its docstring, and conforms until its condition holds: from the n-th object,
above a size, at one rank, after a refused call, in a slot that is used again.

They must not be changed to be easier to find: no lower threshold, no wider condition. One that breaks nothing
that a document says is removed, not repaired.

``--qnn-backend=mutant:late-NAME`` opens one; `pytest_qnn.qnn.mutants.late` gives all.
``tests/qnn/reference/test_late.py`` has for each the calls that show its fault to a client.
"""
