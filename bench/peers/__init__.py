"""Other queues on the same server: how each is installed, and the program that drives it."""
