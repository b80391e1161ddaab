"""The pure core: no input or output, no clock, no framework."""
