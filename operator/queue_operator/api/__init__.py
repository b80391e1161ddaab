"""The REST door: parse, ask who is calling, one Queue call, render."""
