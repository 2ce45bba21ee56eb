"""What a target's processes were asked and answered: kept in a file, and answered again from it.

An executor (`pytest_qnn.isolation.executor.Executing`) is the one place where a judgement depends on anything
but its rule, its seed and its profile. So whoever has all answers can judge again without the target.
"""
