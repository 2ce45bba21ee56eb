"""Controls of the QNN half: plain cases that tell another rule's misbehaviour from a case's own."""
