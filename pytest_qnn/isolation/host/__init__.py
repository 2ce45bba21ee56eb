"""What the system may refuse, on an old kernel or in a container, and what is done then."""
