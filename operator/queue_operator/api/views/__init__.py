"""From what the queue knows to the shapes of the API."""
