"""Small mistakes, one at a time, that the test of some clause must notice."""
