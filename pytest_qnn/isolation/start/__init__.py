"""How the processes are started in which targets are loaded."""
