"""What a child leaves that dies: its calls, the fault, what it wrote; and what follows from that."""
