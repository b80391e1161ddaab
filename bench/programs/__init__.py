"""What runs in a process of its own to be measured: our storage, the plain alternatives, and
the loads that belong to us alone.
"""
