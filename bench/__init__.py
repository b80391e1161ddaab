"""Storage designs side by side on one PostgreSQL, in one run."""
