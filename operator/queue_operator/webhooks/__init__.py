"""Tells receivers, by their callback URLs, that jobs have ended."""
