"""What has requests of a library refused in a program: C, and the statements around the calls."""
