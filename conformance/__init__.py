"""The conformance suite: a module per area, a test per rule, named after it.

``test_reg_08`` judges the rule REG-08, on whatever targets the run selects:

    def test_reg_08(judge: Judge) -> None:
        judge("REG-08")

The name tells the plugin which rule a test stands for before it runs, so that the run opens the targets
it needs, and no others, before its first test. What a rule demands, and why, is in
:mod:`pytest_qnn.rules`; nothing here knows which target is judged.
"""
