"""What travels between the operator and its workers."""
