"""What is seen of delegates and runtimes from outside."""
