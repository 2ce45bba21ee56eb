"""Faulty copies of the reference delegate whose faults start late, or hide.

They are the measure of how well few examples find late faults. Each was written from the documents alone
(the seeds, the facts about delegates, TensorFlow Lite's headers), without knowledge of the rules, so that
they say something about faults that nobody thought of. They must not be changed to be easier to find. They
name no rules, and are in no table but `pytest_qnn.tflite.mutants.late`;
``--tflite-delegate=mutant:late-NAME`` opens one.

Each conforms except under its condition: from the n-th object or call on, above a size, at one rank, after
a failure, and more. The docstring of each class names what states the requirement that it breaks: "facts,
MEM-03" is that line of the catalogue in the facts about delegates.
"""
